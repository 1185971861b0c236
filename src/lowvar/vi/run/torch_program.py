"""Programs for epochs of mapped runs in PyTorch: a Python loop over traced steps.

An operation on small arrays takes less time than its call. Therefore a step is traced once into a program of plain
operations, and one call of JAX draws the noise of many epochs. Blocks of noise start at multiples of their length, so
that no shape depends on where a run is interrupted.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import jax
import numpy as np

from lowvar.core.gaussian import GAUSSIAN
from lowvar.core.torch import trace_program
from lowvar.vi.batches import BATCHES, Noise
from lowvar.vi.batches import sampler as make_sampler
from lowvar.vi.run.engine import NOISE, REPETITIONS, RUNS, draw, mapped

_BLOCK, _VALUES = 256, 2**20  # steps, and values, of the noise drawn at once
_WIDE = 8  # the same of noise too wide for memory


class _State(NamedTuple):
    """The leaves of a state, in JAX's order, in which dicts are sorted, and its structure."""

    leaves: list
    structure: Any


class Epochs:
    """Epochs of mapped runs; arguments as for ``engine.Epochs``."""

    def __init__(self, problem, sampler, at, cuts: bool):
        self._backend, self._steps = problem.backend, sampler.batches.steps
        self._noise = _Blocks(problem, sampler)
        self._programs, self._alone, self._setting = {}, False, None
        self._name = problem.name
        self._stages = {
            "begin": (lambda setting, state: at(setting).begin_epoch(state), (RUNS,)),
            "step": (lambda setting, state, noise: at(setting).step(state, noise), (RUNS, (None, NOISE))),
            "end": (lambda setting, state, index: at(setting).end_epoch(state, index), (RUNS, REPETITIONS)),
        }

    def __call__(self, state, settings, keys, first, count):
        """The state ``count`` epochs after epoch ``first``.

        Args:
            state: of all runs.
            settings: of the step sizes.
            keys: of the repetitions.
            first: an epoch.
            count: epochs; 0 only compiles.
        """
        if count == 0:  # traces the programs by an epoch whose result is discarded
            self(state, settings, keys, first, 1)
            return state
        given, (settings, state) = state, self._flat(settings, state)
        for epoch in range(first, first + count):
            state = self._epoch(settings, state, keys, epoch, 0, self._steps)
        return self._tree(state, given)

    def cut(self, state, settings, keys, epoch, first, end):
        """The state after the steps ``first`` to ``end - 1`` of an epoch, which only its last step closes."""
        return self._tree(self._epoch(*self._flat(settings, state), keys, epoch, first, end), state)

    def close(self):
        """Nothing is open between calls."""

    @staticmethod
    def one_epoch(solvers, sampler, key, params):
        """As in ``engine.Epochs``."""

        def of(solver):
            problem = solver.estimator.problem
            run = Epochs(problem, sampler, lambda setting: solver, cuts=False)
            state = jax.tree.map(lambda leaf: leaf[None, None], solver.init(params))
            keys, setting = key[None], {"step_size": problem.backend.asarray(np.zeros(1, problem.dtype))}
            return lambda: jax.tree.map(lambda leaf: leaf[0, 0], run(state, setting, keys, 0, 1))

        return {name: of(solver) for name, solver in solvers.items()}

    def _flat(self, settings, state):
        """Leaves of the settings, and the state; without the axes of a single run."""
        (settings, self._setting), (leaves, structure) = jax.tree.flatten(settings), jax.tree.flatten(state)
        self._alone = leaves[0].shape[:2] == (1, 1)
        if self._alone:
            settings, leaves = [leaf[0] for leaf in settings], [leaf[0, 0] for leaf in leaves]
        return settings, _State([leaf.contiguous() for leaf in leaves], structure)

    def _tree(self, state, given):
        """The state with the axes of runs, and with the order of dicts that it had when it was given."""
        leaves = [leaf[None, None] for leaf in state.leaves] if self._alone else state.leaves
        return _ordered(jax.tree.unflatten(state.structure, leaves), given)

    def _epoch(self, settings, state, keys, epoch, first, end):
        """Steps of an epoch."""
        if first == 0:
            state = self._run("begin", settings, state, [])
        for noise in self._noise.steps(keys, epoch, first, end, self._alone):
            state = self._run("step", settings, state, noise)
        if end == self._steps:
            state = self._run("end", settings, state, [self._noise.visited(keys, epoch, self._alone)])
        return state

    def _run(self, stage, settings, state, noise):
        """The state after one program."""
        if stage not in self._programs:
            self._programs[stage] = self._compiled(stage, settings, state, noise)
        program, structure = self._programs[stage]
        return _State(program(*settings, *state.leaves, *noise), structure) if program else state

    def _compiled(self, stage, settings, state, noise):
        """A stage as a program of leaves, None if it changes nothing; and the structure of the state after it.

        A state that an epoch begins with may have another structure than those within it.
        """
        function, axes = self._stages[stage]
        function = function if self._alone else mapped(self._backend, function, *axes)
        end, structures, same = len(settings) + len(state.leaves), [], []

        def flat(*leaves):
            setting = jax.tree.unflatten(self._setting, leaves[: len(settings)])
            given = jax.tree.unflatten(state.structure, leaves[len(settings) : end])
            noise = [Noise(*leaves[end:])] if stage == "step" else leaves[end:]
            result, structure = jax.tree.flatten(function(setting, given, *noise))
            structures.append(structure)
            if structure != state.structure:
                return result
            # row numbers may come in another integer type than those of the start
            pairs = list(zip(result, leaves[len(settings) : end], strict=True))
            if any(new.dtype != old.dtype and old.is_floating_point() for new, old in pairs):
                raise TypeError(f"{self._name}: a step changes the floating type of the state")
            same.append(all(new is old for new, old in pairs))
            return [new.to(old.dtype) for new, old in pairs]

        program = trace_program(flat, [*settings, *state.leaves, *noise])
        return None if any(same) else program, structures[0]


def _ordered(tree, like):
    """``tree`` with its dicts in the order of those in ``like``, which PyTorch's own trees keep."""
    if isinstance(like, dict):
        return {key: _ordered(tree[key], like[key]) for key in like}
    if isinstance(like, tuple | list):
        parts = [_ordered(part, of) for part, of in zip(tree, like, strict=True)]
        return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)
    return tree


@lru_cache(maxsize=16)
def _draw_programs(batches, N, size, gaussian, particles, dim, dtype, epochs):
    """Programs that draw a block of epochs, and the base noise of given keys; shared by all runs of a process.

    Returns:
        ``(keys, first epoch) -> Noise``, for wide noise a ``Plan`` of one epoch; and ``keys -> eps``.
    """
    sampler = make_sampler(BATCHES[batches](N, size), GAUSSIAN[gaussian](particles), dim, dtype)

    def block(keys, first):
        if sampler.wide:
            return draw(sampler, keys, first)
        each = jax.vmap(lambda epoch: draw(sampler, keys, epoch), out_axes=NOISE._replace(index=0, eps=0))
        return each(first + jax.numpy.arange(epochs))

    return jax.jit(block), jax.jit(jax.vmap(jax.vmap(lambda key: sampler.gaussian.draw(key, dim, dtype))))


class _Blocks:
    """The noise of a run, drawn many epochs at a time, as lists of the fields of each step's ``Noise``."""

    def __init__(self, problem, sampler):
        self._backend, self._sampler, self._dtype = problem.backend, sampler, problem.dtype
        self._steps, values = sampler.batches.steps, sampler.gaussian.particles * sampler.dim
        most = min(_BLOCK, _VALUES // max(1, values)) // self._steps
        self._epochs = 1 if sampler.wide else max(1, most)
        self._keys, self._number = None, None
        self._noise: Any = None
        batches, gaussian = sampler.batches, sampler.gaussian
        self._block, self._eps = _draw_programs(
            batches.name, batches.N, batches.size, gaussian.name, gaussian.particles, sampler.dim,
            np.dtype(sampler.dtype), self._epochs,
        )  # fmt: skip

    def steps(self, keys, epoch, first, end, alone):
        """The noise of the steps ``first`` to ``end - 1`` of an epoch; ``alone`` without axes of runs."""
        noise, at = self._block_with(keys, epoch, alone), epoch % self._epochs * self._steps
        some: Any = None
        for t in range(first, end):
            if self._sampler.wide and (t == first or t % _WIDE == 0):
                group = noise.eps[:, t - t % _WIDE : t - t % _WIDE + _WIDE]
                some = self._by_step(self._floating(self._eps(group))[None], alone)
            eps = some[t % _WIDE] if self._sampler.wide else noise.eps[at + t]
            yield noise.index[at + t], noise.weight[t], noise.rows[t], eps, noise.position[t]

    def visited(self, keys, epoch, alone):
        """The rows of an epoch's batches, ``(R, steps, B)``."""
        at = epoch % self._epochs * self._steps
        index = self._block_with(keys, epoch, alone).index[at : at + self._steps]
        return self._backend.xp.stack(index, axis=0 if alone else 1)

    def _block_with(self, keys, epoch, alone):
        """The block that contains an epoch, each field as a list of the steps; of a plan, ``eps`` are the keys."""
        if self._keys is not keys:  # perhaps the same in another array
            data = [np.asarray(jax.random.key_data(one)) for one in (self._keys, keys) if one is not None]
            same = len(data) == 2 and np.array_equal(data[0], data[1])
            self._keys, self._number = keys, self._number if same else None
        if self._number != (number := (epoch // self._epochs, alone)):
            noise = self._block(keys, number[0] * self._epochs)
            index = np.asarray(noise.index, np.int64)  # PyTorch would convert others at every use
            eps = noise.key if self._sampler.wide else self._by_step(self._floating(noise.eps), alone)
            index = self._by_step(index[None] if self._sampler.wide else index, alone)
            fixed = (self._backend.asarray(np.asarray(one)) for one in (noise.weight, noise.rows, noise.position))
            weight, rows, position = (one.unbind(0) for one in fixed)
            self._number, self._noise = number, Noise(index, weight, rows, eps, position)
        return self._noise

    def _by_step(self, value, alone):
        """``(epochs, R, steps, ...)`` as an array for each step."""
        value = np.swapaxes(value, 1, 2)
        joined = value.reshape(-1, *value.shape[2 + alone :])
        return self._backend.asarray(joined).unbind(0)

    def _floating(self, value):
        """In the problem's precision; JAX draws in single precision unless its option x64 is set."""
        return np.asarray(value).astype(self._dtype, copy=False)
