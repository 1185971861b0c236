"""Test functions on R^d, and of binary and categorical points, written once for both backends.

A function's random parts are drawn from its own seed, so all runs minimise the same one. Every formula on R^d takes the
displacement ``u = R (x - x*)`` from the optimum, in a form without cancellation near it, so that values are accurate
for gaps far below 1e-10.

References:
    Lyu and Tsang, Table 1; ``sphere`` and ``elastic_net`` are not in it. Their Discus reads ``10^6 x_1 + ...``, which
    has no minimum; ``x_1`` is squared here.
"""

import hashlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from lowvar.core.backend import Backend
from lowvar.errors import UserError, whole
from lowvar.search.problem import BlackBoxProblem, Domain, uniform_probabilities


def _ones(dim: int) -> np.ndarray:
    return np.ones(dim)


def _first(dim: int) -> np.ndarray:
    """1e6 for the first coordinate, 1 for the others."""
    return np.where(np.arange(dim) == 0, 1e6, 1.0)


def _powers(decades: float) -> Callable[[int], np.ndarray]:
    """Log-spaced from 1 to ``10^decades``: ``10^(decades (i - 1) / (d - 1))``."""
    return lambda dim: 10.0 ** (decades * np.arange(dim) / max(dim - 1, 1))


def _function(scale: Callable[[int], np.ndarray] = _ones, at: float = 0.0):
    """Turns a formula ``(xp, u (N, d), scale (1, d)) -> (N,)`` into a factory of problems.

    Args:
        scale: scales of the coordinates, ``dim -> (dim,)``.
        at: every coordinate of the unshifted optimum.
    """

    def decorate(formula):
        own = formula.__name__

        def factory(
            backend: Backend,
            dim: int,
            *,
            rotation: bool | int = False,
            shift: Any = 0.0,
            seed: int = 0,
            name: str | None = None,
        ) -> BlackBoxProblem:
            dim = whole("dim", dim, 1)
            optimum = at + shift_vector(shift, dim, seed)
            turn = _turn(rotation, dim, seed)
            constants = [backend.asarray(part) for part in (optimum, scale(dim))]
            turned = None if turn is None else backend.asarray(turn.T.copy())

            def values(points):
                where, scales = (backend.asarray(part, points)[None, :] for part in constants)
                u = points - where if optimum.any() else points
                if turned is not None:
                    u = u @ backend.asarray(turned, points)
                return formula(backend.xp, u, scales)

            return BlackBoxProblem(name or own, Domain("real", dim), values, backend, 0.0, uniform(dim), optimum)

        factory.__name__ = factory.__qualname__ = own
        factory.__doc__ = f"{formula.__doc__}\n{_OPTIONS}"
        return factory

    return decorate


_OPTIONS = """
    The search starts from a mean drawn uniformly from [0, 1]^d, with standard deviation 0.5.

    Args:
        backend: the array library.
        dim: ``d``, at least 1.
        rotation: rotate the function about its optimum by a random orthogonal matrix: ``True`` (drawn from
            ``seed``), a whole number (drawn from that seed, 0 included), or ``False``.
        shift: move the optimum by this number times a standard normal vector drawn from ``seed``, or by this vector.
        seed: seed of the rotation and the shift.
        name: name of the problem; the function's own if not given.

    Raises:
        UserError: an option out of range.
    """


@_function()
def sphere(xp, u, scale):
    """``sum x_i^2``."""
    return xp.sum(u * u, axis=-1)


@_function()
def elastic_net(xp, u, scale):
    """``sum x_i^2 + |x_i|``: strongly convex, with a kink at its optimum."""
    return xp.sum(u * u + xp.abs(u), axis=-1)


@_function(_powers(6))
def ellipsoid(xp, u, scale):
    """``sum 10^(6 (i - 1) / (d - 1)) x_i^2``."""
    return xp.sum(scale * (u * u), axis=-1)


@_function(_first)
def discus(xp, u, scale):
    """``10^6 x_1^2 + sum_{i >= 2} x_i^2``."""
    return xp.sum(scale * (u * u), axis=-1)


@_function(_powers(6))
def l1_ellipsoid(xp, u, scale):
    """``sum 10^(6 (i - 1) / (d - 1)) |x_i|``."""
    return xp.sum(scale * xp.abs(u), axis=-1)


@_function(_powers(6))
def l_half_ellipsoid(xp, u, scale):
    """``sum 10^(6 (i - 1) / (d - 1)) |x_i|^(1/2)``."""
    return xp.sum(scale * xp.sqrt(xp.abs(u)), axis=-1)


@_function(at=1.0)
def levy(xp, u, scale):
    """``sin^2(pi w_1) + sum_{i < d} (w_i - 1)^2 (1 + 10 sin^2(pi w_i + 1)) + (w_d - 1)^2 (1 + sin^2(2 pi w_d))``.

    ``w_i = 1 + (x_i - 1) / 4``; the optimum is at ``x = 1``.
    """
    t = u / 4  # w - 1; shifts by multiples of pi leave the squared sines unchanged
    first, rest, last = t[:, 0], t[:, :-1], t[:, -1]
    wells = xp.sum(rest**2 * (1 + 10 * xp.sin(math.pi * rest + 1) ** 2), axis=-1)
    return xp.sin(math.pi * first) ** 2 + wells + last**2 * (1 + xp.sin(2 * math.pi * last) ** 2)


@_function(_powers(1))
def rastrigin10(xp, u, scale):
    """``10 d + sum (s_i x_i)^2 - 10 cos(2 pi s_i x_i)``, ``s_i = 10^((i - 1) / (d - 1))``."""
    y = scale * u
    return xp.sum(y * y + 20 * xp.sin(math.pi * y) ** 2, axis=-1)  # 10 - 10 cos 2a = 20 sin^2 a


def haar(dim: int, seed: int) -> np.ndarray:
    """A Haar-distributed orthogonal matrix, the same for all functions with this dimension and seed."""
    q, r = np.linalg.qr(generator(seed, "rotation", dim).standard_normal((dim, dim)))
    return q * np.where(np.diag(r) < 0, -1.0, 1.0)[None, :]


def shift_vector(shift: Any, dim: int, seed: int) -> np.ndarray:
    """The displacement of the optimum: ``shift`` itself, or that number times a standard normal vector."""
    try:
        vector = np.asarray(shift, dtype=np.float64)
    except (TypeError, ValueError):
        vector = np.array(np.nan)
    if isinstance(shift, bool) or vector.shape not in ((), (dim,)) or not np.isfinite(vector).all():
        raise UserError(f"shift {shift!r}: it must be a finite number, or a vector of {dim} of them")
    if vector.ndim == 0:
        return float(vector) * generator(seed, "shift", dim).standard_normal(dim) if vector else np.zeros(dim)
    return vector.copy()


def _turn(rotation: bool | int, dim: int, seed: int) -> np.ndarray | None:
    if rotation is False or rotation is None:
        return None
    if rotation is True:
        return haar(dim, seed)
    if not isinstance(rotation, (int, np.integer)):
        raise UserError(f"rotation {rotation!r}: it must be true, false or a whole number, its seed")
    return haar(dim, rotation)


def uniform(dim: int, low: float = 0.0, high: float = 1.0) -> Callable[[Any], np.ndarray]:
    """``key -> `` a start drawn uniformly from ``[low, high]^dim``."""

    def start(key):
        import jax

        return np.asarray(jax.random.uniform(key, (dim,), minval=low, maxval=high))

    return start


def binary_reconstruction(backend: Backend, dim: int, *, seed: int = 0, name: str | None = None) -> BlackBoxProblem:
    """``||sign(x - 1/2) - w||^2 - ||sign(w) - w||^2``, with ``w ~ N(0, I)`` fixed by the seed; the optimum is 0.

    Computed as a cost of ``4 |w_i|`` for each coordinate with the wrong sign.

    Args:
        backend: the array library.
        dim: ``d``, at least 1.
        seed: seed of ``w``.
        name: name of the problem.

    Raises:
        UserError: an option out of range.

    References:
        Lyu and Tsang, Appendix A, "Evaluation on discrete test problems".
    """
    dim, xp = whole("dim", dim, 1), backend.xp
    w = generator(seed, "binary_reconstruction", dim).standard_normal(dim)
    best = (w > 0).astype(np.int32)
    right, costs = backend.asarray(best), backend.asarray(4 * np.abs(w))

    def values(points):
        return xp.sum(xp.where(points != right[None, :], costs[None, :], xp.zeros_like(costs)[None, :]), axis=-1)

    domain = Domain("binary", dim, 2)
    return _discrete(name or "binary_reconstruction", domain, values, backend, best)


def categorical_reconstruction(
    backend: Backend, dim: int, *, choices: int = 5, seed: int = 0, name: str | None = None
) -> BlackBoxProblem:
    """``sum_i w[i, x_i] - min_j w[i, j]``, with ``w ~ N(0, 1)`` fixed by the seed; the optimum is 0.

    Args:
        backend: the array library.
        dim: ``d``, at least 1.
        choices: ``K``, at least 2.
        seed: seed of ``w``.
        name: name of the problem.

    Raises:
        UserError: an option out of range.
    """
    dim, choices, xp = whole("dim", dim, 1), whole("choices", choices, 2), backend.xp
    w = generator(seed, "categorical_reconstruction", dim, choices).standard_normal((dim, choices))
    regret = backend.asarray((w - w.min(axis=1, keepdims=True)).reshape(-1))
    rows = backend.asarray(choices * np.arange(dim, dtype=np.int64))

    def values(points):
        return xp.sum(regret[rows[None, :] + xp.astype(points, rows.dtype)], axis=-1)

    domain = Domain("categorical", dim, choices)
    return _discrete(name or "categorical_reconstruction", domain, values, backend, w.argmin(axis=1).astype(np.int32))


def _discrete(name, domain, values, backend, best):
    """The problem with the minimum 0 at ``best``, whose searches start from uniform probabilities."""
    return BlackBoxProblem(name, domain, values, backend, 0.0, lambda key: uniform_probabilities(domain), best)


def generator(seed: int, *names: object) -> np.random.Generator:
    """The random stream of ``names`` under ``seed``, for a problem's definition; searches draw from other streams.

    Args:
        seed: the problem's seed.
        names: purpose of the numbers, e.g. ``"rotation", 100``.

    Raises:
        UserError: the seed is not a whole number.

    >>> a, b = generator(0, "shift", 2), generator(0, "shift", 3)
    >>> bool(a.random() == b.random())
    False
    """
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise UserError(f"seed {seed!r}: it must be a whole number")
    text = "\x1f".join([str(int(seed)), *map(str, names)])
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big"))
