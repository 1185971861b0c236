"""Policy search: minus the return of an episode, as a function of the policy's parameters.

The policy has one hidden layer of 16 tanh units and an output layer of tanh units, scaled to the action's bounds:
``a = high * tanh(W2 [tanh(W1 [s, 1]), 1])``. A point holds ``W1`` row by row, and then ``W2``; the last column of
each is the bias.

Episodes always start from the same states, drawn from the problem's seed: a value depends only on its point, all
searches minimise the same function, and a killed run can be repeated.

References:
    Lyu and Tsang, section 6, "Evaluation on RL test problems" (which says neither how actions are bounded nor
    whether there are biases).
"""

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from lowvar.core.backend import Backend
from lowvar.errors import UserError, whole
from lowvar.search.evaluator import one_by_one
from lowvar.search.problem import BlackBoxProblem, Domain
from lowvar_studies.functions.functions import generator

HIDDEN = 16

# name -> environment, observations, actions
TASKS = {
    "swimmer": ("Swimmer-v5", 8, 2),
    "half_cheetah": ("HalfCheetah-v5", 17, 6),
    "inverted_double_pendulum": ("InvertedDoublePendulum-v5", 9, 1),
    "humanoid_standup": ("HumanoidStandup-v5", 348, 17),
}


def parameters(observations: int, actions: int) -> int:
    """Coordinates of a policy: the two weight matrices with their biases.

    >>> parameters(8, 2)
    178
    """
    return HIDDEN * (observations + 1) + actions * (HIDDEN + 1)


def _task(own: str):
    environment, observations, actions = TASKS[own]
    size = parameters(observations, actions)

    def factory(
        backend: Backend | None = None,
        dim: int | None = None,
        *,
        episodes: int = 1,
        max_steps: int | None = None,
        workers: int = 1,
        seed: int = 0,
        name: str | None = None,
    ) -> BlackBoxProblem:
        if dim not in (None, size):
            raise UserError(f"{own}: dim {dim!r}: its policy has {size} parameters; leave dim out")
        episodes, workers = whole("episodes", episodes, 1), whole("workers", workers, 1)
        steps = None if max_steps is None else whole("max_steps", max_steps, 1)
        _libraries()
        resets = tuple(int(reset) for reset in generator(seed, environment, "resets").integers(2**31, size=episodes))
        value = functools.partial(loss, own, resets, steps)

        def values(points):
            return one_by_one(value, np.asarray(points, dtype=np.float64), workers)

        domain = Domain("real", size)
        return BlackBoxProblem(name or own, domain, values, None, None, lambda key: np.zeros(size), sigma0=0.1)

    factory.__name__ = factory.__qualname__ = own
    factory.__doc__ = f"Policy search on gymnasium's {environment}: {size} parameters.\n{_OPTIONS}"
    return factory


_OPTIONS = """
    Args:
        backend: not used; the simulator runs on the host.
        dim: not needed; the task implies it.
        episodes: number of episodes, each from its own initial state; a value is minus their mean return.
        max_steps: maximum length of an episode; the task's own (1000) if not given.
        workers: processes that share the points of a generation.
        seed: seed of the initial states.
        name: name of the problem.

    Raises:
        UserError: an option out of range, or gymnasium or mujoco is not installed.
    """

swimmer = _task("swimmer")
half_cheetah = _task("half_cheetah")
inverted_double_pendulum = _task("inverted_double_pendulum")
humanoid_standup = _task("humanoid_standup")


def loss(task: str, resets: tuple[int, ...], max_steps: int | None, point: np.ndarray) -> float:
    """Minus the mean return of the policy ``point`` over episodes that start from the seeds ``resets``.

    NaN if a parameter is not finite or the simulation became unstable.
    """
    if not np.isfinite(point).all():
        return np.nan
    arena = _arena(task)
    return -sum(arena.play(point, reset, max_steps) for reset in resets) / len(resets)


@dataclass(frozen=True)
class _View:
    """A task's observations and rewards, without an environment's ``step``.

    By ``step`` an episode takes 1.1 (humanoid) to 1.9 times (swimmer) the CPU time.

    Attributes:
        observe: writes an observation into an array.
        reward: ``x before the step -> (reward, whether the episode ends)``.
        forces: whether the task needs contact forces.
    """

    observe: Callable[[np.ndarray], Any]
    reward: Callable[[float], tuple[float, bool]]
    forces: bool = False


def _runner(hidden: int, cost: float):
    """Forward velocity minus the cost of actions; the first ``hidden`` positions are not observed."""

    def view(env):
        position, velocity, ctrl, dt = env.data.qpos, env.data.qvel, env.data.ctrl, env.dt
        parts = (position[hidden:], velocity)

        def observe(out):
            np.concatenate(parts, out=out)

        def reward(before):
            return (position[0] - before) / dt - cost * ctrl.dot(ctrl), False

        return _View(observe, reward)

    return view


def _pendulum(env):
    """10 for each step upright, minus penalties for distance and velocity."""
    position, velocity, force, tip = env.data.qpos, env.data.qvel, env.data.qfrc_constraint, env.data.site_xpos[0]
    angles = position[1:]

    def observe(out):
        out[0] = position[0]
        np.sin(angles, out=out[1:3])
        np.cos(angles, out=out[3:5])
        np.clip(velocity, -10, 10, out=out[5:8])
        out[8] = min(max(force[0], -10.0), 10.0)

    def reward(before):
        x, _, y = tip.tolist()
        _, first, second = velocity.tolist()
        fallen = y <= 1
        penalties = 0.01 * x**2 + (y - 2) ** 2 + 1e-3 * first**2 + 5e-3 * second**2
        return (0.0 if fallen else 10.0) - penalties, fallen

    return _View(observe, reward)


def _standup(env):
    """Height divided by the simulator's time step, minus the costs of actions and impacts, plus 1."""
    data, timestep = env.data, env.model.opt.timestep
    position, ctrl, contact = data.qpos, data.ctrl, data.cfrc_ext.reshape(-1)
    parts = (
        position[2:],
        data.qvel,
        data.cinert[1:].reshape(-1),
        data.cvel[1:].reshape(-1),
        data.qfrc_actuator[6:],
        data.cfrc_ext[1:].reshape(-1),
    )

    def observe(out):
        np.concatenate(parts, out=out)

    def reward(before):
        impact = min(0.5e-6 * contact.dot(contact), 10.0)
        return position[2] / timestep - 0.1 * ctrl.dot(ctrl) - impact + 1, False

    return _View(observe, reward, forces=True)


_VIEWS = {
    "swimmer": _runner(hidden=2, cost=1e-4),
    "half_cheetah": _runner(hidden=1, cost=0.1),
    "inverted_double_pendulum": _pendulum,
    "humanoid_standup": _standup,
}


class _Arena:
    """One simulation of a task, and the arrays of its policy."""

    def __init__(self, task: str):
        gymnasium, self.mujoco = _libraries()
        environment, self.observations, self.actions = TASKS[task]
        with self.quiet():
            made: Any = gymnasium.make(environment)
        self.env, self.steps = made.unwrapped, made.spec.max_episode_steps
        self.view = _VIEWS[task](self.env)
        self.high = self.env.action_space.high.astype(np.float64)  # bounds are symmetric in all four tasks

    def play(self, point: np.ndarray, reset: int, max_steps: int | None = None) -> float:
        """The return of one episode; NaN if the simulator had to reset an unstable state."""
        env, step, observe, reward = self.env, self.mujoco.mj_step, self.view.observe, self.view.reward
        model, data, skip, ctrl, position = env.model, env.data, env.frame_skip, env.data.ctrl, env.data.qpos
        after = self.mujoco.mj_rnePostConstraint if self.view.forces else None
        split = HIDDEN * (self.observations + 1)
        first, second = point[:split].reshape(HIDDEN, -1), point[split:].reshape(self.actions, -1)
        seen, units, action = np.ones(self.observations + 1), np.ones(HIDDEN + 1), np.empty(self.actions)
        state, layer, high = seen[:-1], units[:-1], self.high
        total = 0.0
        with self.quiet():
            env.reset(seed=reset)
            for _ in range(min(self.steps, max_steps or self.steps)):
                observe(state)
                np.dot(first, seen, out=layer)
                np.tanh(layer, out=layer)
                np.dot(second, units, out=action)
                np.tanh(action, out=action)
                np.multiply(action, high, out=ctrl)
                before = position[0]
                step(model, data, skip)
                if after is not None:
                    after(model, data)
                gained, over = reward(before)
                total += gained
                if over:
                    break
        return float(total) if self.stable() else np.nan

    def stable(self) -> bool:
        """Whether the simulator has not reset an unstable state in this episode."""
        kinds = self.mujoco.mjtWarning
        bad = [int(kind) for kind in (kinds.mjWARN_BADQPOS, kinds.mjWARN_BADQVEL, kinds.mjWARN_BADQACC)]
        return not self.env.data.warning.number[bad].any()

    @contextlib.contextmanager
    def quiet(self):
        """Keeps the simulator from writing its warnings into a file in the working directory."""
        before = self.mujoco.get_mju_user_warning()
        self.mujoco.set_mju_user_warning(lambda message: None)
        try:
            yield
        finally:
            self.mujoco.set_mju_user_warning(before)


@functools.cache
def _arena(task: str) -> _Arena:
    return _Arena(task)


def _libraries():
    try:
        import gymnasium
        import mujoco
    except ModuleNotFoundError as error:
        if error.name not in ("gymnasium", "mujoco"):
            raise
        raise UserError(f"policy search needs the package {error.name}: pip install 'lowvar[rl]'") from error
    return gymnasium, mujoco
