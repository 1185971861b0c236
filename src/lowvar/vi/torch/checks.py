"""Checks before a fit that functions in PyTorch are a model: shapes, densities, derivatives, independent rows.

A wrong shape would broadcast, a detached tensor would have a gradient of zero, a branch would be traced once and kept:
each would give a wrong fit without an error.
"""

import contextlib

import numpy as np
import torch

from lowvar.errors import UserError, one_line
from lowvar.vi.drawn_start import saddle_sites
from lowvar.vi.row_independence import batches, interaction, some_rows, tensors_of
from lowvar.vi.torch.functions import plain
from lowvar.vi.torch.index_range import Strict

_STEPS = {torch.float64: (1e-6, 1e-3), torch.float32: (3e-3, 1e-2)}  # of finite differences, and their tolerance
_DIRECTIONS, _AWAY = 5, 10.0  # finite differences that vote, and how far apart their points are, in steps
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


def check(problem, centre: np.ndarray, near) -> list[str]:
    """Rejects functions that are not a model whose rows can be subsampled.

    Args:
        problem: the model as a problem.
        centre: the start without its random part, ``(dim,)``.
        near: the sites that have one.

    Returns:
        The sites of which the centre is a saddle point, see ``saddle_sites``.

    Raises:
        UserError: an error of a function; results of a wrong shape or type; densities that are not finite at the start;
            random numbers; gradients that disagree with finite differences; rows that depend on the other rows of a
            batch; branches, or operations that ``torch.func`` cannot transform.
    """
    z = _start(problem)
    _check_shapes(problem, z)
    _check_random(problem, z)
    check_density(problem)
    point = _point(problem, z)
    _check_rows(problem, point)
    _check_derivatives(problem, point)
    _check_traced(problem, point)
    index = _index(problem, some_rows(problem.N))

    def values(z):
        with torch.no_grad():
            return problem.log_likelihood(torch.as_tensor(z).to(point), index).cpu().numpy()

    return saddle_sites(values, problem.sites, centre, near)


def _start(problem):
    return problem.backend.asarray(np.asarray(problem.start["mu"], problem.dtype))


def _index(problem, rows):
    return problem.backend.asarray(np.array(rows, np.int64))


def _check_shapes(problem, z):
    name, model = problem.name, problem.model
    several = some_rows(problem.N)
    for rows in (several, several[:1]):
        with _explained(problem, f"log_likelihood, on z of shape ({problem.dim},) and {len(rows)} rows,"):
            value = plain(model.log_likelihood)(z.clone(), _index(problem, rows))
        _check_tensor(name, "log_likelihood", value)
        if tuple(value.shape) != (len(rows),):
            raise UserError(
                f"{name}: log_likelihood returned shape {tuple(value.shape)} for {len(rows)} rows; it must return one "
                f"value for each row, shape ({len(rows)},){_hint(tuple(value.shape), len(rows), problem.N)}"
            )
    with _explained(problem, f"log_prior, on z of shape ({problem.dim},),"):
        value = plain(model.log_prior)(z.clone())
    _check_tensor(name, "log_prior", value)
    if value.shape != ():
        raise UserError(f"{name}: log_prior returned shape {tuple(value.shape)}; it must return one number: sum it")


def _check_tensor(name, function, value):
    if not isinstance(value, torch.Tensor):
        raise UserError(f"{name}: {function} must return a tensor, not {type(value).__name__}")
    if not value.is_floating_point():
        raise UserError(f"{name}: {function} returned {value.dtype}; it must return floating numbers")


def _hint(shape, rows, N):
    if shape == () and rows > 1:
        return ": without a sum or a mean over them"
    if shape == (N,) and rows != N:
        return ": use the data of the rows `index` alone"
    if shape == () and rows == 1:
        return "; a possible cause is a squeeze() that also removes the axis of the rows"
    if len(shape) == 2 and shape[0] == rows and 1 not in shape[1:]:
        if shape == (rows, rows):
            return "; a possible cause is a y of shape (N, 1), which broadcasts every row with every other"
        return ": sum over the other axes"
    return ""


def _check_random(problem, z):
    """Checks that equal arguments give equal values: traced random numbers would not belong to the noise."""
    model, index = problem.model, _index(problem, some_rows(problem.N))
    values = []
    for seed in (0, 1):
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(seed)
            values.append((plain(model.log_likelihood)(z.clone(), index), plain(model.log_prior)(z.clone())))
    for one, other in zip(*values, strict=True):
        if not torch.equal(one.nan_to_num(), other.nan_to_num()):
            raise UserError(
                f"{problem.name}: two evaluations at the same point differ: the model draws random numbers of its own "
                "(dropout: use module.eval()) or changes state; make them latent variables, or remove them"
            )


def check_density(problem):
    """Checks that the density is finite at the start for every row."""
    z = _start(problem)
    with torch.no_grad():
        prior = float(problem.log_prior(z))
        if not np.isfinite(prior):
            raise UserError(
                f"{problem.name}: the log prior is {prior} at the start; check it, or start elsewhere: init"
            )
        for index in problem.chunks["index"]:
            rows, strict = (
                f"log_likelihood, on rows up to {int(index.max())} of N = {problem.N},",
                Strict(index, problem.N),
            )
            with _explained(problem, rows), strict:
                values = problem.log_likelihood(z, index)
            if not torch.isfinite(values).all():
                row = int(torch.nonzero(~torch.isfinite(values))[0])
                if strict.found and torch.isfinite(problem.log_likelihood(z, index)[row]):
                    raise UserError(
                        f"{problem.name}: the log-likelihood of row {int(index[row])} reads an array at a negative "
                        "index, which PyTorch counts from its end; give a missing category (-1 in pandas) a number of "
                        "its own, and replace by torch.where what a first row lacks"
                    )
                raise UserError(
                    f"{problem.name}: the log-likelihood of row {int(index[row])} is {float(values[row])} at the "
                    "start; "
                    "check that row and the likelihood's support, or start elsewhere: init"
                )


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


def _check_rows(problem, z):
    """Checks that rows do not interact: joint evaluation equals row-by-row evaluation."""
    model, none = problem.model, np.zeros((1, 0))
    columns = tensors_of(model.log_likelihood)
    width = problem.dim + sum(one[:1].numel() for one in columns.values() if isinstance(one, torch.Tensor) and one.ndim)
    of_row = torch.func.vmap(lambda z, row: problem.log_likelihood(z, row[None])[0], (None, 0), chunk_size=64)

    def evaluate(z, rows, alone):
        point, index = problem.backend.asarray(z), _index(problem, rows)
        with torch.no_grad():
            try:
                values = of_row(point, index) if alone else problem.log_likelihood(point, index)
            except RuntimeError:  # torch.func cannot transform the model, as `_check_traced` explains
                values = torch.cat([problem.log_likelihood(point, one) for one in index.split(1)])
        return values.double().cpu().numpy()[None], none

    found = batches(problem.N, width, columns)
    if (meeting := interaction(evaluate, found, z.cpu().numpy())) is not None:
        raise UserError(
            f"{problem.name}: " + meeting.told(
                "compute statistics of several rows (a mean, a sum, their number, a lag) from all the data, before; "
                "batch normalisation needs module.eval()"
            )
        )  # fmt: skip


def _check_traced(problem, z):
    """Checks that the traced gradient at another point and other rows is the one by autograd."""
    backend, rows = problem.backend, some_rows(problem.N)
    weight = backend.asarray(np.full(len(rows), 1 / len(rows), problem.dtype))
    with _explained(problem, "the gradient", traced=True):
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
def _explained(problem, what, traced=False):
    """Turns errors of a user's function into UserErrors."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        text = str(error)
        if isinstance(error, IndexError) or "out of bounds" in text or "out of range" in text:
            raise UserError(
                f"{problem.name}: {what} fails: an array has fewer than N = {problem.N} rows ({one_line(error)})"
            ) from error
        if traced and any(sign in text for sign in _BRANCHES):
            raise UserError(
                f"{problem.name}: the model branches in Python on a value that depends on z or on the rows, or makes a "
                "number of it (.item()); use torch.where, and shapes that do not depend on values"
            ) from error
        if traced and any(sign in text for sign in _IN_PLACE):
            raise UserError(
                f"{problem.name}: the model writes values that depend on z in place into a tensor that does not; make "
                "that tensor with z.new_zeros(...), or write out = out + ... for out += ..."
            ) from error
        if traced:
            raise UserError(f"{problem.name}: torch.func cannot transform the model: {one_line(error)}") from error
        hint = "; batch normalisation needs module.eval()" if "per channel when training" in text else ""
        raise UserError(f"{problem.name}: {what} fails: {one_line(error)}{hint}") from error


_BRANCHES = (
    "data-dependent control flow", ".item()", "data-dependent", "dynamic shape", "get value out of a tracing tensor",
)  # fmt: skip
_IN_PLACE = ("inplace arithmetic", "doesn't match the broadcast shape")
