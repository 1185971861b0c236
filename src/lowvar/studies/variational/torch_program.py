"""The program for epochs of mapped runs in PyTorch: a Python loop over compiled groups of steps.

An operation on small arrays takes less time than its call from Python. Therefore a step is traced once into a graph of
plain operations, and several of them, or several short epochs, run as one program. The noise of many epochs is drawn
by one call of JAX. Programs and blocks of noise start at multiples of their length, so that no shape depends on where
a run is interrupted.
"""

from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import numpy as np
import torch

from lowvar.backends.torch import scripted, traced
from lowvar.noise import BATCHES, GAUSSIAN, Noise
from lowvar.noise import sampler as make_sampler
from lowvar.studies.variational.programs import NOISE, REPETITIONS, RUNS, draw, mapped

_UNROLL = 8  # steps that run as one program
_BLOCK, _VALUES = 256, 2**20  # steps, and values, of the noise drawn at once
_STEP = (1, 0, 0, 1, 0)  # the axis of the steps in the fields of an epoch's noise


class _State(NamedTuple):
    """The leaves of a state, in JAX's order, in which dicts are sorted, and its structure."""

    leaves: list
    structure: Any


class _Program(NamedTuple):
    """What runs as one program: some steps of an epoch, or whole epochs."""

    begins: bool
    steps: int
    ends: bool
    epochs: int = 1


class Epochs:
    """Epochs of mapped runs.

    Args:
        problem: an objective in PyTorch.
        sampler: draws the noise.
        at: ``setting -> solver``.
        cuts: whether ``cut`` will be called; it needs nothing here.
    """

    def __init__(self, problem, sampler, at, cuts: bool = False):
        self._backend, self._steps = problem.backend, sampler.batches.steps
        self._whole = self._steps <= _UNROLL and not sampler.wide  # whether programs have whole epochs
        self._together = _UNROLL // self._steps if self._whole else 1
        self._noise = _Blocks(problem, sampler, self._together)
        self._graphs, self._programs, self._alone, self._setting = {}, {}, False, None
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
        at, end = first, first + count
        while at < end:
            epochs = self._together if at % self._together == 0 and at + self._together <= end else 1
            if self._whole:
                whole = _Program(True, self._steps, True, epochs)
                state = self._run(whole, settings, state, self._noise.epochs(keys, at, epochs))
            else:
                state = self._epoch(settings, state, keys, at, 0, self._steps)
            at += epochs
        return self._tree(state, given)

    def cut(self, state, settings, keys, epoch, first, end):
        """The state after the steps ``first``, a multiple of 8, to ``end - 1`` of an epoch; only its last closes it."""
        return self._tree(self._epoch(*self._flat(settings, state), keys, epoch, first, end), state)

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
        """Steps of an epoch, in groups."""
        for t in range(first, end, _UNROLL):
            size = min(_UNROLL, end - t)
            what = _Program(t == 0, size, t + size == self._steps)
            state = self._run(what, settings, state, self._noise.steps(keys, epoch, t, size))
        return state

    def _run(self, what, settings, state, noise):
        """The state after one program."""
        if what not in self._programs:
            self._programs[what] = self._compiled(what, settings, state, noise)
        program, structure = self._programs[what]
        with torch.no_grad():
            return _State(list(program(*settings, *state.leaves, *noise)), structure)

    def _compiled(self, what, settings, state, noise):
        """The graphs of a program in their order, as one, and the structure of the state after it."""
        chain, first = _Chain(len(settings), len(state.leaves)), [*settings, *state.leaves, *noise]
        *fields, visited = noise

        def part(fields, visited, t=0):
            parts = (leaf.select(axis, t) for leaf, axis in zip(fields, _STEP, strict=True))
            return [leaf[0] if self._alone and axis else leaf for leaf, axis in zip(parts, _STEP, strict=True)]

        def of_epoch(fields, visited, epoch=0):
            return [visited[0, epoch] if self._alone else visited[:, epoch]]

        for epoch in range(what.epochs):
            if what.begins:
                state = self._link(chain, "begin", settings, state, lambda fields, visited: [], [])
            for t in range(epoch * what.steps, (epoch + 1) * what.steps):
                state = self._link(chain, "step", settings, state, partial(part, t=t), part(fields, visited))
            if what.ends:
                rows = partial(of_epoch, epoch=epoch)
                state = self._link(chain, "end", settings, state, rows, rows(fields, visited))
        return scripted(chain, first), state.structure

    def _link(self, chain, stage, settings, state, part, noise):
        """Adds a stage to a chain, as a graph of plain operations on leaves; returns a state as it leaves it.

        A state that an epoch begins with may have another structure than those within it.
        """
        if stage not in self._graphs:
            function, axes = self._stages[stage]
            function = function if self._alone else mapped(self._backend, function, *axes)
            end, structures = len(settings) + len(state.leaves), []

            def flat(*leaves):
                setting = jax.tree.unflatten(self._setting, leaves[: len(settings)])
                given = jax.tree.unflatten(state.structure, leaves[len(settings) : end])
                noise = [Noise(*leaves[end:])] if stage == "step" else leaves[end:]
                result, structure = jax.tree.flatten(function(setting, given, *noise))
                structures.append(structure)
                if structure != state.structure:
                    return result
                # row numbers may come in another integer type than those of the start
                pairs = zip(result, state.leaves, strict=True)
                return [new if old.is_floating_point() else new.to(old.dtype) for new, old in pairs]

            leaves = [*settings, *state.leaves, *noise]
            graph = traced(flat, leaves)
            with torch.no_grad():
                after = _State(list(graph(*leaves)), structures[0])
            if after.structure == state.structure and any(
                new.dtype != old.dtype for new, old in zip(after.leaves, state.leaves, strict=True)
            ):
                raise TypeError(f"{self._name}: a step changes the floating type of the state")
            given = [node for node in graph.graph.nodes if node.op == "placeholder"][len(settings) : end]
            (result,) = next(node for node in graph.graph.nodes if node.op == "output").args
            self._graphs[stage] = None if list(result) == given else graph, after
        graph, after = self._graphs[stage]
        chain.add(graph, part)
        return after


def one_epoch(solver, key, params):
    """See ``programs.one_epoch``."""
    problem = solver.estimator.problem
    run = Epochs(problem, solver.sampler, lambda setting: solver)
    state = jax.tree.map(lambda leaf: leaf[None, None], solver.init(params))
    keys, setting = key[None], {"step_size": problem.backend.asarray(np.zeros(1, problem.dtype))}
    return lambda: jax.tree.map(lambda leaf: leaf[0, 0], run(state, setting, keys, 0, 1))


def _ordered(tree, like):
    """``tree`` with its dicts in the order of those in ``like``, which PyTorch's own trees keep."""
    if isinstance(like, dict):
        return {key: _ordered(tree[key], like[key]) for key in like}
    if isinstance(like, tuple | list):
        parts = [_ordered(part, of) for part, of in zip(tree, like, strict=True)]
        return type(like)(*parts) if hasattr(like, "_fields") else type(like)(parts)
    return tree


class _Chain(torch.nn.Module):
    """Graphs one after the other: each maps settings, state and its part of the noise to the state."""

    def __init__(self, settings: int, state: int):
        super().__init__()
        self._settings, self._state, self._links = settings, state, []

    def add(self, graph, part) -> None:
        """Adds a graph, if there is one, and the function that takes its noise from ``(fields, visited)``."""
        if graph is not None:
            self.add_module(f"graph{len(self._links)}", graph)
            self._links.append((graph, part))

    def forward(self, *leaves):
        """The state's leaves; ``leaves`` are of the settings, of the state, and of the noise."""
        settings, noise = leaves[: self._settings], leaves[self._settings + self._state :]
        state = leaves[self._settings : self._settings + self._state]
        *fields, visited = noise
        for graph, part in self._links:
            state = graph(*settings, *state, *part(fields, visited))
        return tuple(state)


@lru_cache(maxsize=16)
def _drawn(batches, N, size, gaussian, particles, dim, dtype, epochs):
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
    """The noise of a run, drawn many epochs at a time, in the groups in which programs use it.

    A group is the fields of ``Noise`` with an axis of steps, and the rows of its whole epochs ``visited (R, epochs,
    steps, B)``.
    """

    def __init__(self, problem, sampler, together):
        self._backend, self._sampler, self._dtype = problem.backend, sampler, problem.dtype
        steps, values = sampler.batches.steps, sampler.gaussian.particles * sampler.dim
        most = max(1, min(_BLOCK, _VALUES // max(1, values)) // steps)
        self._epochs = 1 if sampler.wide else max(together, most - most % together)
        self._keys, self._number = None, None
        self._drawn: Any = None
        batches, gaussian = sampler.batches, sampler.gaussian
        self._block, self._eps = _drawn(
            batches.name, batches.N, batches.size, gaussian.name, gaussian.particles, sampler.dim,
            np.dtype(sampler.dtype), self._epochs,
        )  # fmt: skip

    def epochs(self, keys, first, count):
        """The noise of whole epochs."""
        noise, at = self._of(keys, first), first % self._epochs
        index, eps = (leaf[at : at + count].transpose(0, 1) for leaf in (noise.index, noise.eps))
        flat = [leaf.reshape(leaf.shape[0], -1, *leaf.shape[3:]) for leaf in (index, eps)]
        shared = noise.weight, noise.rows, noise.position
        weight, rows, position = (leaf.repeat(count, *[1] * (leaf.ndim - 1)) for leaf in shared)
        return flat[0].contiguous(), weight, rows, flat[1].contiguous(), position, index.contiguous()

    def steps(self, keys, epoch, first, count):
        """The noise of ``count`` steps of an epoch from step ``first``."""
        noise, some = self._of(keys, epoch), slice(first, first + count)
        visited = noise.index[epoch % self._epochs]
        eps = self._eps_of(noise, some) if self._sampler.wide else noise.eps[epoch % self._epochs][:, some]
        parts = visited[:, some], noise.weight[some], noise.rows[some], eps, noise.position[some], visited[:, None]
        return [leaf.contiguous() for leaf in parts]

    def _eps_of(self, noise, some):
        return self._floating(self._eps(noise.eps[:, some]))

    def _of(self, keys, epoch):
        """The block that contains an epoch, as tensors; of a plan, ``eps`` are the keys."""
        if self._keys is not keys:  # perhaps the same in another array
            data = [np.asarray(jax.random.key_data(one)) for one in (self._keys, keys) if one is not None]
            same = len(data) == 2 and np.array_equal(data[0], data[1])
            self._keys, self._number = keys, self._number if same else None
        if self._number != (number := epoch // self._epochs):
            noise = self._block(keys, number * self._epochs)
            index = np.asarray(noise.index, np.int64)  # PyTorch would convert others at every use
            eps = noise.key if self._sampler.wide else self._floating(noise.eps)
            fixed = map(self._tensor, (noise.weight, noise.rows, noise.position))
            weight, rows, position = fixed
            index = self._tensor(index[None] if self._sampler.wide else index)
            self._number, self._drawn = number, Noise(index, weight, rows, eps, position)
        return self._drawn

    def _floating(self, value):
        """In the problem's precision; JAX draws in single precision unless its option x64 is set."""
        return self._tensor(np.asarray(value).astype(self._dtype))

    def _tensor(self, value):
        return self._backend.asarray(np.asarray(value))
