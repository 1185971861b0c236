"""Many runs of one method at once: mapped over step sizes and repetitions, an epoch or more per call.

JAX runs any number of epochs in one compiled program, whose length is an argument; PyTorch loops in Python
over mapped steps. Both draw the same noise.
"""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from lowvar import estimators
from lowvar.errors import UserError
from lowvar.estimators.gradient.following import following
from lowvar.noise import BATCHES, GAUSSIAN, Noise, named_key, sampler
from lowvar.problems.guide import initial_params
from lowvar.runs import trees
from lowvar.runs.loop import geometric
from lowvar.solvers import descend, optimizer

_UNROLL = 6  # steps that PyTorch runs as one program
_NOISE_AXES = Noise(index=0, weight=None, rows=None, eps=0, position=None)
_RUNS, _REPETITIONS, _NOISE = (0, 0), (None, 0), (None, _NOISE_AXES)


class VariationalEngine:
    """The runs of one method: ``len(step_sizes) x repetitions`` of them, as one array program.

    Args:
        problem: a variational problem.
        make_estimator: ``(problem, batches) -> Estimator``.
        solver: a ``SolverSpec``.
        keys: one JAX key for each repetition's noise.
        starts: initial parameters, ``{"mu": (repetitions, dim), ...}`` NumPy arrays.
    """

    def __init__(self, problem, make_estimator, solver, keys, starts):
        self.problem, self.solver, self.keys, self.starts = problem, solver, keys, starts
        self.backend = problem.backend
        batches = BATCHES[solver.batches](problem.N, solver.batch_size)
        gaussian = GAUSSIAN[solver.eps](solver.samples)
        self.sampler = sampler(batches, gaussian, problem.dim, problem.dtype)
        self.estimator = make_estimator(problem, batches)
        self.steps = batches.steps
        self.stops = geometric(solver.epochs)
        self.runs = len(solver.step_sizes) * solver.repetitions
        advance = {"jax": self._advance_jax, "torch": self._advance_torch}[self.backend.name]
        self.advance = advance()
        self._elbos = self._make_elbos()

    def descent(self, step_size):
        """The solver with one step size."""
        return descend(self.estimator, self.sampler, optimizer(self.solver.optimizer, step_size, self.backend))

    def _mapped(self, function, *axes):
        """``function(step_size, ...)`` over step sizes (outer) and repetitions (inner).

        Each further argument has ``_RUNS`` (an axis for both), ``_REPETITIONS`` (shared by the step sizes) or
        ``_NOISE`` (also shared, and batch weights and positions shared by the repetitions as well).
        """
        vmap = self.backend.vmap
        inner = vmap(function, (None, *(inner for _, inner in axes)))
        return vmap(inner, (0, *(outer for outer, _ in axes)))

    @property
    def step_sizes(self):
        """The grid, as a floating array of the backend."""
        return self.backend.asarray(np.asarray(self.solver.step_sizes, self.problem.dtype))

    def init(self):
        """The state of all runs before the first epoch."""
        starts = {k: self.backend.asarray(np.asarray(v, self.problem.dtype)) for k, v in self.starts.items()}

        def init(step_size, start):
            return self.descent(step_size).init(start)

        mapped = self._mapped(init, _REPETITIONS)
        return (jax.jit(mapped) if self.backend.name == "jax" else mapped)(self.step_sizes, starts)

    def _draw(self, keys, epoch):
        """The noise of an epoch for all repetitions."""
        draw = jax.vmap(lambda key: self.sampler.epoch(jax.random.fold_in(key, epoch)), out_axes=_NOISE_AXES)
        return draw(keys)

    def _advance_jax(self):
        def epoch(step_size, state, noise):
            return self.descent(step_size).epoch(state, noise)

        mapped = self._mapped(epoch, _RUNS, _NOISE)

        @partial(jax.jit, donate_argnums=0)
        def advance(state, step_sizes, keys, first, count):
            def body(i, state):
                return mapped(step_sizes, state, self._draw(keys, i))

            return jax.lax.fori_loop(first, first + count, body, state)

        return lambda state, first, count: advance(state, self.step_sizes, self.keys, first, count)

    def _advance_torch(self):
        draw = jax.jit(self._draw)

        def begin(step_size, state):
            return self.descent(step_size).begin_epoch(state)

        def some(step_size, state, noise):
            solver = self.descent(step_size)
            return self.backend.scan_or_loop(lambda state, noise: solver.step(state, noise)[0], state, noise)

        def end(step_size, state, index):
            return self.descent(step_size).end_epoch(state, index)

        begin = self.backend.compile(self._mapped(begin, _RUNS))
        some = self.backend.compile(self._mapped(some, _RUNS, _NOISE))
        end = self.backend.compile(self._mapped(end, _RUNS, _REPETITIONS))

        def advance(state, first, count):
            if count == 0:  # traces the programs, and moves nothing: an epoch whose result is dropped
                advance(state, first, 1)
                return state
            for i in range(first, first + count):
                noise = Noise(*(self.backend.asarray(np.asarray(part)) for part in draw(self.keys, i)))
                state = begin(self.step_sizes, state)
                for t in range(0, self.steps, _UNROLL):
                    here = slice(t, t + _UNROLL)
                    part = Noise(noise.index[:, here], noise.weight[here], noise.rows[here], noise.eps[:, here],
                                 noise.position[here])  # fmt: skip
                    state = some(self.step_sizes, state, part)
                state = end(self.step_sizes, state, noise.index)
            return state

        return advance

    def _make_elbos(self):
        """``state -> (values, errors)``, each ``(step sizes, repetitions)``, in nats."""
        problem, backend = self.problem, self.backend
        eps = None
        if problem.exact_elbo is None:
            # the same points at every evaluation: differences along a run are then less noisy than values
            key = named_key(0, "elbo", problem.name)
            eps = backend.asarray(
                np.asarray(jax.random.normal(key, (self.solver.elbo_samples, problem.dim), problem.dtype))
            )

        def elbo(params):
            return problem.elbo(params, eps)

        if backend.name == "jax":

            @jax.jit
            def all_of(params):
                flat = jax.tree.map(lambda leaf: leaf.reshape(-1, leaf.shape[-1]), params)
                return jax.lax.map(elbo, flat)

            compute = all_of
        else:

            def compute(params):
                flat = {name: leaf.reshape(-1, leaf.shape[-1]) for name, leaf in params.items()}
                runs = next(iter(flat.values())).shape[0]
                pairs = [elbo({name: leaf[r] for name, leaf in flat.items()}) for r in range(runs)]
                return tuple(backend.xp.stack(column) for column in zip(*pairs, strict=True))

        shape = (len(self.solver.step_sizes), self.solver.repetitions)
        return lambda state: tuple(part.reshape(shape) for part in backend.to_numpy(tuple(compute(state.params))))

    def wait(self, state) -> None:
        """Returns when ``state`` has been computed."""
        trees.wait(self.backend, state)

    def measure(self, state) -> dict[str, np.ndarray]:
        """ELBO and its standard error, each ``(step sizes, repetitions)``, in nats."""
        elbo, error = self._elbos(state)
        return {"elbo": elbo, "elbo_se": error}

    def finished(self, state) -> bool:
        """Never before the end."""
        return False

    def trace(self, stops, measured):
        """A row per stop, step size and repetition."""
        import pandas as pd

        values, errors = measured["elbo"], measured["elbo_se"]
        epoch, step, repetition = (axis.ravel() for axis in np.indices(values.shape))
        epochs = np.asarray(stops)[epoch]
        batches = self.sampler.batches
        rows_per_epoch = self.problem.N if batches.covers else self.steps * self.solver.batch_size
        oracles = self.estimator.oracles_of_run(epochs, rows_per_epoch, self.solver.samples)
        return pd.DataFrame(
            {
                "step_size": np.asarray(self.solver.step_sizes)[step],
                "repetition": repetition,
                "epoch": epochs,
                "iteration": epochs * self.steps,
                "gradients": oracles.gradients,
                "hvps": oracles.hvps,
                "elbo": values.ravel(),
                "elbo_se": errors.ravel(),
                "status": np.where(np.isfinite(values.ravel()), "ok", "diverged"),
            }
        )

    def work(self, stops) -> dict:
        """Epochs done."""
        return {"epoch": stops}

    def params(self, state, measured) -> dict[str, np.ndarray]:
        """Final parameters, ``{"mu": (step sizes, repetitions, dim), ...}``."""
        return {name: np.asarray(leaf) for name, leaf in self.backend.to_numpy(state.params).items()}

    def flatten(self, state) -> list[np.ndarray]:
        """The state's arrays as NumPy, in a fixed order; ``unflatten`` is the inverse."""
        return trees.flatten(self.backend, state)

    def unflatten(self, leaves):
        """The state whose arrays are ``leaves``."""
        return trees.unflatten(self.backend, leaves, like=self.init())


def noise_keys(seed: int, name: str, repetitions: int):
    """The noise keys of a problem's repetitions: by name, so that methods and backends share them."""
    return jnp.stack([named_key(seed, name, "noise", r) for r in range(repetitions)])


def start_params(kind: str, seed: int, name: str, repetitions: int, dim: int):
    """Initial parameters of a problem's repetitions, ``{"mu": (repetitions, dim), "log_sigma": ...}``."""
    starts = [initial_params(kind, dim, named_key(seed, name, "start", r)) for r in range(repetitions)]
    return {block: np.stack([start[block] for start in starts]) for block in starts[0]}


def build(problem, method, solver, *, seed: int, name: str) -> VariationalEngine:
    """The engine of a method on a problem.

    Args:
        problem: a variational problem.
        method: a ``MethodSpec``.
        solver: a ``SolverSpec``.
        seed: the experiment's.
        name: the problem's name, under which noise and starts are drawn.
    """
    keys = noise_keys(seed, name, solver.repetitions)
    starts = start_params(solver.initial, seed, name, solver.repetitions, problem.dim)
    return VariationalEngine(
        problem, lambda problem, batches: make_estimator(method, problem, batches), solver, keys, starts
    )


def make_estimator(method, problem, batches):
    """The estimator of a ``MethodSpec``.

    Raises:
        UserError: no such estimator, or it does not take the method's options.
    """
    factory = estimators.gradient_estimator(method.estimator)
    backend = problem.backend.name
    try:
        inspect.signature(factory).bind(problem, batches, **method.options)
    except TypeError as error:
        raise UserError(f"options of estimator {method.estimator!r}: {error}") from error
    made = factory(problem, batches, **method.options)
    if backend not in made.properties.backends:
        known = ", ".join(made.properties.backends)
        raise UserError(f"estimator {method.estimator!r} does not run on {backend}: it supports {known}")
    return made


def follow(problem, methods, leader: str, solver, *, seed: int, name: str):
    """The engine of one run that several methods follow, and their estimators by name.

    Args:
        problem: a variational problem.
        methods: ``{name: MethodSpec}``.
        leader: the method whose gradients are used.
        solver: a ``SolverSpec`` with one step size and one repetition.
        seed: the experiment's.
        name: the problem's name, under which noise and start are drawn.
    """
    parts = {}

    def make(problem, batches):
        parts.update({key: make_estimator(method, problem, batches) for key, method in methods.items()})
        return following(leader, parts)

    starts = start_params(solver.initial, seed, name, 1, problem.dim)
    return VariationalEngine(problem, make, solver, noise_keys(seed, name, 1), starts), parts
