"""Checks before a fit that functions in PyTorch are a model: shapes, densities, derivatives, independent rows.

A wrong shape would broadcast, a detached tensor would have a gradient of zero, a branch would be traced once and kept:
each would give a wrong fit without an error.
"""

import contextlib

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from lowvar.errors import UserError, one_line
from lowvar.vi.check import Check, some_rows, tensors_of
from lowvar.vi.torch.functions import plain

_STEPS = {torch.float64: (1e-6, 1e-3), torch.float32: (3e-3, 1e-2)}  # of finite differences, and their tolerance
_DIRECTIONS, _AWAY = 5, 10.0  # finite differences that vote, and how far apart their points are, in steps
_WRITTEN = 8  # most entries of a tensor that is written in code, and has no entry for each row
_ROUNDINGS, _CONFIRMED = 20, 3  # of a value, that a difference may consist of; of its change with half the step


def dtype_of(model, name: str, mu: np.ndarray):
    """The NumPy dtype of ``z``: the model's, or PyTorch's default, or the other one if only that runs.

    Raises:
        UserError: another type than float32 and float64, or the functions run with neither.
    """
    if model.dtype is not None:
        given = str(model.dtype).removeprefix("torch.") if isinstance(model.dtype, torch.dtype) else model.dtype
        try:
            found = np.dtype(given)
        except TypeError:
            found = None
        if found not in (np.float32, np.float64):
            raise UserError(f"{name}: dtype {model.dtype}: it must be torch.float32 or torch.float64")
        return found
    first = torch.get_default_dtype() if torch.get_default_dtype() in _STEPS else torch.float32
    types = [first, *(one for one in _STEPS if one is not first)]
    errors = []
    for dtype in types:
        z = torch.as_tensor(mu, dtype=dtype, device=torch.get_default_device())
        index = torch.as_tensor(some_rows(model.N))
        try:
            with torch.no_grad():
                values = plain(model.log_likelihood)(z, index), plain(model.log_prior)(z)
        except Exception as error:
            errors.append(error)
            continue
        wide = any(isinstance(value, torch.Tensor) and value.dtype is torch.float64 for value in values)
        return np.dtype("float64" if wide else str(dtype).removeprefix("torch."))
    raise UserError(
        f"{name}: the model cannot be run on z of shape ({model.dim},) and index of shape "
        f"({len(some_rows(model.N))},): {one_line(errors[0])}"
    ) from errors[0]


class TorchCheck(Check):
    """The check of a model in PyTorch: also that autograd sees all of it, and that ``torch.func`` transforms it."""

    index = "negative, which PyTorch counts from its end"
    where = "torch.where"
    advice = (
        "compute statistics of several rows (a mean, a sum, their number, a lag) from all the data, before; "
        "batch normalisation needs module.eval()"
    )

    def functions(self, problem):
        """As in ``Check``, with the checks of ``torch.distributions``; they may change their arguments."""
        likelihood, prior = plain(problem.model.log_likelihood), plain(problem.model.log_prior)
        return {
            "log_likelihood": lambda z, index: likelihood(z.clone(), index.to(torch.int64)),
            "log_prior": lambda z: prior(z.clone()),
        }

    def failed(self, problem, name, rows, alone, error):
        """As in ``Check``."""
        given = "" if rows is None else f" and {len(rows)} rows"
        return f"{name}, on z of shape ({problem.dim},){given}, fails: {one_line(error, 300)}"

    def value(self, problem, name, value):
        """As in ``Check``."""
        if not isinstance(value, torch.Tensor):
            raise UserError(f"{problem.name}: {name} must return a tensor, not {type(value).__name__}")
        super().value(problem, name, value)

    def random(self, problem, z):
        """Checks that equal arguments give equal values: traced random numbers would not belong to the noise."""
        index, values = _index(problem, some_rows(problem.N)), []
        likelihood, prior = self.functions(problem).values()
        for seed in (0, 1):
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                torch.manual_seed(seed)
                values.append((likelihood(z, index), prior(z)))
        for one, other in zip(*values, strict=True):
            if not torch.equal(one.nan_to_num(), other.nan_to_num()):
                raise UserError(
                    f"{problem.name}: two evaluations at the same point differ: the model draws random numbers of its "
                    "own (dropout: use module.eval()) or changes state; make them latent variables, or remove them"
                )

    def density(self, problem):
        """As in ``Check``."""
        with torch.no_grad(), _explained(problem, f"log_likelihood, on all N = {problem.N} rows,"):
            super().density(problem)

    def strict(self, problem, z):
        """As in ``Check``."""

        def run(z, gone=-1):
            modes = [Strict(index, problem.N, gone) for index in problem.chunks["index"]]
            values = []
            for mode in modes:
                with torch.no_grad(), mode:
                    values.append(problem.log_likelihood(z, mode.rows))
            return torch.cat(values).cpu().numpy(), modes

        _, modes = run(z)
        if not any(mode.found for mode in modes):
            return []
        whole = any(mode.whole for mode in modes)
        return [lambda z, gone=gone: run(z, gone)[0] for gone in ((-1, 0, 1) if whole else (-1,))]

    def derivatives(self, problem, z):
        """Checks those by autograd, and those that ``torch.func`` traces."""
        point = _point(problem, z)
        _check_derivatives(problem, point)
        _check_traced(problem, point)

    def evaluator(self, problem, z):
        """As in ``Check``, of log-likelihoods alone."""
        of_row = torch.func.vmap(lambda z, row: problem.log_likelihood(z, row[None])[0], (None, 0), chunk_size=64)

        def evaluate(z, rows, alone):
            point, index = problem.backend.asarray(np.asarray(z, problem.dtype)), _index(problem, rows)
            with torch.no_grad():
                try:
                    values = of_row(point, index) if alone else problem.log_likelihood(point, index)
                except RuntimeError:  # torch.func cannot transform the index of a row
                    values = torch.cat([problem.log_likelihood(point, one) for one in index.split(1)])
            return values.double().cpu().numpy()[None], np.zeros((1, 0))

        return evaluate, tensors_of(problem.model.log_likelihood), z.cpu().numpy()


def _index(problem, rows):
    return problem.backend.asarray(np.array(rows, np.int64))


def _point(problem, z):
    """A random point near the start with finite densities."""
    rng = np.random.default_rng(0)
    index = _index(problem, some_rows(problem.N))
    for spread in (0.3, 0.03, 0.0):
        point = z + spread * torch.as_tensor(rng.normal(size=z.shape)).to(z)
        with torch.no_grad():
            if torch.isfinite(problem.log_likelihood(point, index)).all() and torch.isfinite(problem.log_prior(point)):
                return point
    return z


def _check_derivatives(problem, z):
    """Checks gradients by autograd against finite differences along random directions, from points of their own.

    Most of them must agree, as far as half the step confirms a difference: across a kink, as of a ReLU, it is no
    derivative, and of large terms that cancel it is rounding.
    """
    rng = np.random.default_rng(1)
    index = _index(problem, some_rows(problem.N))
    step = _STEPS[z.dtype][0]
    away, directions = torch.as_tensor(rng.normal(size=(2, _DIRECTIONS, *z.shape))).to(z)
    parts = {"log_likelihood": lambda z: problem.log_likelihood(z, index).sum(), "log_prior": problem.log_prior}
    for name, function in parts.items():
        with _explained(problem, f"the derivative of {name}"):
            pairs = [
                _slopes(function, z + _AWAY * step * by, along) for by, along in zip(away, directions, strict=True)
            ]
        wrong = [pair for pair in pairs if pair is not None]
        if 2 * len(wrong) > _DIRECTIONS:
            slope, found = wrong[0]
            raise UserError(
                f"{problem.name}: the gradient of {name} by autograd is {slope:.4g} along a direction in which it "
                f"changes by {found:.4g}: some of its operations are hidden from autograd, such as .detach(), .item(), "
                "torch.no_grad() or NumPy's; compute it with PyTorch alone"
            )


def _slopes(function, z, direction) -> tuple[float, float] | None:
    """The slope by autograd and by finite differences, if they disagree."""
    step, tolerance = _STEPS[z.dtype]
    at, slope = z.clone().requires_grad_(), 0.0
    value = function(at)
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value, at, allow_unused=True)
        slope = 0.0 if gradient is None else float(gradient @ direction)
    with torch.no_grad():
        ends = np.array([[float(function(z + by * direction)) for by in (h, -h)] for h in (step, step / 2)])
    found, half = (float(ahead - behind) / by for (ahead, behind), by in zip(ends, (2 * step, step), strict=True))
    if not np.isfinite([found, half, slope]).all():
        return None
    rounding = _ROUNDINGS * torch.finfo(z.dtype).eps * np.abs(ends).max() / step
    doubt = tolerance * max(abs(found), abs(slope)) + _CONFIRMED * abs(found - half) + rounding
    return (slope, found) if abs(found - slope) > doubt else None


def _check_traced(problem, z):
    """Checks that the traced gradient at another point and other rows is the one by autograd."""
    backend, rows = problem.backend, some_rows(problem.N)
    weight = backend.asarray(np.full(len(rows), 1 / len(rows), problem.dtype))
    with _explained(problem, "the gradient that torch.func traces"):
        program = backend.compile(backend.vmap(problem.gradient, (0, None, None)))
        program(torch.stack([z, z]), _index(problem, np.zeros_like(rows)), weight)
        index = _index(problem, rows)
        there = torch.stack([z, 0.9 * z + 0.01])
        found = program(there, index, weight)
    for point, gradient in zip(there, found, strict=True):
        at = point.clone().requires_grad_()
        (expected,) = torch.autograd.grad(problem.energy(at, index, weight), at)
        size = float(expected.abs().max())
        tolerance = 1e-3 if z.dtype is torch.float32 else 1e-6
        if np.isfinite(size) and float((gradient - expected).abs().max()) > tolerance * size + 1e-30:
            raise UserError(
                f"{problem.name}: the model computes something else at another point or on other rows than it did "
                "when it was traced: it branches in Python on values (use torch.where), or changes state"
            )


@contextlib.contextmanager
def _explained(problem, what):
    """Turns errors of a user's function into UserErrors."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{problem.name}: {what} fails: {one_line(error, 300)}") from error


class Strict(TorchDispatchMode):
    """Reads other values at negative indices that are computed from rows, or that an array has for each row.

    PyTorch counts those from the end, as the -1 by which pandas codes a missing category; it refuses those beyond the
    end itself. NaN takes their place, or for integers ``gone``, see ``Check.strict``. Indices that the model itself
    makes, as in ``x[:, [0, -1]]``, are meant.

    Args:
        rows: the row numbers of the batch.
        N: number of rows of the data.
        gone: an integer in place of an entry of integers or booleans.

    Attributes:
        found: whether there was such an index.
        whole: whether one was of an array of integers.
    """

    def __init__(self, rows: torch.Tensor, N: int, gone: int):
        super().__init__()
        self.rows, self._N, self._gone, self.found, self.whole = rows, N, gone, False, False
        self._from_rows = WeakTensorKeyDictionary()  # tensors that the model makes: whether it does from rows
        self._from_rows[rows] = True

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Runs one operation of PyTorch."""
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
        if func is torch.ops.aten.lift_fresh.default and given[0].numel() <= _WRITTEN:  # a list in the model's code
            self._from_rows[given[0]] = False
        from_rows = any(self._is_from_rows(one) for one in given)
        if func is torch.ops.aten.index.Tensor and (axes := self._negative(args[1])):
            args = self._padded(args[0], args[1], axes)
        out = func(*args, **(kwargs or {}))
        if from_rows or (given and all(one in self._from_rows for one in given)):
            for one in tree_leaves(out):
                if isinstance(one, torch.Tensor):
                    self._from_rows[one] = from_rows
        return out

    def _is_from_rows(self, one: torch.Tensor) -> bool:
        if one in self._from_rows:
            return self._from_rows[one]
        whole = not (one.is_floating_point() or one.is_complex())
        return whole and one.ndim > 0 and len(one) == self._N  # of the user's data

    def _negative(self, indices) -> list[int]:
        """The axes whose indices are rows' own and negative somewhere; none where a mask shifts the axes."""
        given = [(axis, one) for axis, one in enumerate(indices) if one is not None]
        if any(one.dtype in (torch.bool, torch.uint8) for _, one in given):
            return []
        return [axis for axis, one in given if self._is_from_rows(one) and bool((one < 0).any())]

    def _padded(self, source, indices, axes):
        """Arguments of an indexing in which negative indices read an additional last entry."""
        self.found, indices, gone = True, list(indices), torch.nan
        if not (source.is_floating_point() or source.is_complex()):
            self.whole, gone = True, self._gone if source.dtype.is_signed else abs(self._gone)
        for axis in axes:
            indices[axis] = torch.where(indices[axis] < 0, source.shape[axis], indices[axis])
            source = torch.cat([source, torch.full_like(source.narrow(axis, 0, 1), gone)], axis)
        return source, indices
