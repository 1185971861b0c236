"""Gaussian guides ``q(z)``: mean field, low rank, full rank and block diagonal, and the registry of guides.

A Gaussian guide moves base noise ``eps ~ N(0, I)`` to ``z = mu + sigma o u`` with directions ``u`` that are linear in
``eps``: ``u = eps`` for the mean-field guide, ``u = (I + U) eps`` with ``U`` strictly lower triangular
(``Triangular``), ``u = eps_d + W eps_r`` (``LowRank``). As the rows of the factor are in units of
``sigma``, its entries have no unit, and one step size suits them whatever the scale of ``z``.

**Control variates of the scale parameters.** With ``g`` the gradient of the energy in ``z``, the gradient in a scale
parameter is ``g(z)`` times a function that is linear in ``eps``. For a general factor, ``z = mu + L eps``, it is
``tril(g(z) eps')``. Around ``mu``, with ``g0 = g(mu)`` and the Hessian ``H``,

    g(z) eps' = g0 eps' + H L eps eps' + ...

The first term has mean exactly zero and no cost: ``g0`` comes with the Hessian-vector product that controls the part
of ``mu``. The second has mean ``tril(H L)``, which costs ``dim`` Hessian-vector products. The precision
of the guide, ``P = (L L')^-1``, can stand in for ``H``: ``P L = L'^-1``, so ``tril(L'^-1 eps eps')`` has mean
``diag(1 / L_ii)``, the gradient of the entropy. Where the posterior is Gaussian and the guide fits it, ``P = H``.

References:
    Miller, Foti, D'Amour and Adams, "Reducing reparameterization gradient variance", 2017, section 3, for the
    expansion and diagonal ``L``; Geffner and Domke, "Using large ensembles of control variates for variational
    inference", 2018, for differences of estimates of the entropy's gradient as control variates; Roeder, Wu and
    Duvenaud, "Sticking the landing", 2017, eq. 7, for the estimate with ``P``.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from lowvar.errors import UserError, whole
from lowvar.registry import Registry
from lowvar.vi.guides.interface import Guide

NO_NOISE = -40.0  # log sigma of a point estimate: in every precision, sigma is positive and below rounding


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian over R^dim, a ``Guide``; subclasses define ``u``, and the parameters that it depends on.

    Parameters are ``mu (dim,)``, ``log_sigma (dim,)`` and the blocks of ``shape``.

    Attributes:
        dim: dimension of ``z``.
        backend: the array library.
        noiseless: which coordinates are point estimates, ``(dim,)`` booleans: ``z = mu`` there, without noise or
            entropy. Their ``log_sigma`` stays at ``NO_NOISE``: its gradient is zero.
    """

    dim: int
    backend: "Backend"
    noiseless: Any = None

    # --- a subclass defines ``u`` -------------------------------------------------------------------------------------

    name = ""
    autoguide = "AutoMultivariateNormal"
    amortised = False
    estimator = "joint_adaptive"
    factorised = False
    about = "a Gaussian"
    misses = ("skewed", "skewed or heavy-tailed")
    wider = ""

    @property
    def noise_dim(self) -> int:
        """See ``Guide``."""
        return self.dim

    @property
    def shape(self) -> dict[str, int]:
        """The blocks besides ``mu`` and ``log_sigma``, and their lengths."""
        return {}

    def directions(self, params, eps):
        """``u``, ``(dim,)``, for one ``eps (noise_dim,)``; reads only the blocks of ``shape``."""
        return eps

    def shape_gradient(self, params, eps, scaled):
        """The gradient in the blocks of ``shape``, from ``sigma`` times that in ``z``, ``(dim,)``."""
        return {}

    def whitened(self, params, eps):
        """``C^-1 u`` with ``C`` the covariance of ``u``, ``(dim,)``."""
        return eps

    def widths(self, params):
        """The standard deviations of ``u``, ``(dim,)``."""
        return self.backend.xp.ones_like(params["log_sigma"])

    def matrix(self, params) -> np.ndarray:
        """See ``Guide``."""
        of_unit = self.backend.vmap(lambda eps: self._noisy(self.step(self.point(params), eps)))
        units = np.eye(self.noise_dim, dtype=self.backend.to_numpy(params["mu"]).dtype)
        return self.backend.to_numpy(of_unit(self.backend.asarray(units))).T

    def part(self, block: str, where: slice) -> slice:
        """See ``Guide``."""
        return where

    def start(self, mu, log_sigma, key=None) -> dict[str, np.ndarray]:
        """See ``Guide``."""
        return {"mu": np.asarray(mu), "log_sigma": np.asarray(log_sigma)}

    # --- the rest of ``Guide`` follows from it ------------------------------------------------------------------------

    @property
    def blocks(self) -> dict[str, int]:
        """See ``Guide``."""
        return {"mu": self.dim, "log_sigma": self.dim, **self.shape}

    @property
    def controlled(self) -> dict[str, int]:
        """See ``Guide``."""
        return {block: 2 for block in self.blocks if block != "mu"}

    def point(self, params):
        """See ``Guide``: ``mu``, ``sigma`` and the blocks of ``shape``."""
        shape = {block: params[block] for block in self.shape}
        return {"mu": params["mu"], "sigma": self.backend.xp.exp(params["log_sigma"]), **shape}

    def step(self, point, eps):
        """See ``Guide``: ``sigma o u``."""
        return point["sigma"] * self.directions(point, eps)

    def steps(self, points, eps):
        """See ``Guide``."""
        return self.backend.vmap(self.step, (0, None))(points, eps)

    def transform(self, params, eps):
        """See ``Guide``."""
        return params["mu"] + self._noisy(self.step(self.point(params), eps))

    def pull_back(self, params, eps, gradient):
        """See ``Guide``."""
        scaled = gradient * self.backend.xp.exp(params["log_sigma"])
        along = scaled * self.directions(params, eps)
        shape = self.shape_gradient(params, eps, scaled)
        return {"mu": gradient, "log_sigma": self._noisy(along), **shape}

    def first_order(self, params, eps, gradient):
        """See ``Guide``; none for the mean-field guide: the published control variates leave ``log_sigma`` alone."""
        linear = self.pull_back(params, self.backend.xp.mean(eps, axis=0), gradient)
        return {block: value for block, value in linear.items() if block != "mu"}

    def controls(self, params, eps, gradient):
        """See ``Guide``: of first order, and of second order with the guide's precision in place of the Hessian."""
        vmap, mean = self.backend.vmap, self.backend.xp.mean

        def of_point(eps):
            return self.pull_back(params, eps, -self.path_score(params, eps))

        first, entropy = self.first_order(params, eps, gradient), self.entropy_gradient(params)
        second = {block: mean(value, axis=0) for block, value in vmap(of_point)(eps).items()}
        return {block: [first[block], second[block] - entropy[block]] for block in first}

    def scale(self, params):
        """See ``Guide``."""
        return self.backend.xp.exp(params["log_sigma"]) * self.widths(params)

    def path_score(self, params, eps):
        """See ``Guide``."""
        return self._noisy(-self.whitened(params, eps) / self.backend.xp.exp(params["log_sigma"]))

    def entropy(self, params):
        """See ``Guide``; where ``u`` is a linear map of ``eps`` with determinant one, as is ``log_density``."""
        return self.backend.xp.sum(self._noisy(params["log_sigma"])) + 0.5 * self._count * (1 + np.log(2 * np.pi))

    def entropy_gradient(self, params):
        """See ``Guide``: zero for ``mu``, one for ``log sigma``."""
        xp = self.backend.xp
        ones = self._noisy(xp.ones_like(params["log_sigma"]))
        return {block: ones if block == "log_sigma" else xp.zeros_like(params[block]) for block in self.blocks}

    def log_density(self, params, eps):
        """See ``Guide``."""
        xp = self.backend.xp
        return -xp.sum(self._noisy(params["log_sigma"] + 0.5 * eps**2 + 0.5 * np.log(2 * np.pi)))

    @property
    def _count(self) -> int:
        """Number of coordinates with noise."""
        return self.dim if self.noiseless is None else self.dim - int(np.sum(self.noiseless))

    def _noisy(self, values):
        """``values (dim,)``, with zeros at the point estimates."""
        if self.noiseless is None:
            return values
        return self.backend.xp.where(self.backend.asarray(self.noiseless), self.backend.xp.zeros_like(values), values)


@dataclass(frozen=True)
class MeanField(Gaussian):
    """A factorised Gaussian, ``z = mu + sigma o eps``, with the parameters ``{"mu": (dim,), "log_sigma": (dim,)}``."""

    name = "mean_field"
    autoguide = "AutoNormal"
    factorised = True
    about = "a mean-field"
    misses = ("correlated or skewed", "correlated, skewed or heavy-tailed")
    wider = "see fit.with_linear_response(), fit with guide='full_rank' (in many dimensions, 'low_rank'), "

    @property
    def controlled(self) -> dict[str, int]:
        """See ``Guide``."""
        return {"log_sigma": 1}

    def first_order(self, params, eps, gradient):
        """See ``Guide``."""
        return {}

    def scale(self, params):
        """See ``Gaussian``."""
        return self.backend.xp.exp(params["log_sigma"])

    def controls(self, params, eps, gradient):
        """See ``Guide``; the first-order one alone."""
        return {"log_sigma": [gradient * self.step(self.point(params), self.backend.xp.mean(eps, axis=0))]}


def initial_params(kind: str, dim: int, key) -> dict[str, Any]:
    """Starting means and scales as NumPy arrays, ``{"mu": (dim,), "log_sigma": (dim,)}``, see ``Guide.start``.

    Args:
        kind: ``"standard"`` draws every parameter from N(0, 1), as the joint control variate's paper does;
            ``"origin"`` sets ``mu = 0`` and ``sigma = 0.1``, the usual start of a library; ``"unit"`` draws ``mu``
            from N(0, 0.01^2) and sets ``sigma = exp(0.001)``, as that paper's code does.
        dim: dimension of the latent space.
        key: a JAX key (unused by ``"origin"``).
    """
    if kind == "origin":
        return {"mu": np.zeros(dim), "log_sigma": np.full(dim, np.log(0.1))}
    import jax

    if kind == "unit":
        return {"mu": 0.01 * np.asarray(jax.random.normal(key, (dim,))), "log_sigma": np.full(dim, 0.001)}
    mu, log_sigma = np.asarray(jax.random.normal(key, (2, dim)))
    return {"mu": mu, "log_sigma": log_sigma}


_FACTOR = 0.1  # standard deviation of the factor's entries at the start: at 0 its gradient is noise alone


@dataclass(frozen=True)
class LowRank(Gaussian):
    """``z = mu + sigma o (eps_d + W eps_r)``: the covariance is ``D (I + W W') D`` with ``D = diag(sigma)``.

    ``eps`` has ``dim + rank`` entries. The block ``factor`` is ``W (dim, rank)``, row by row.

    Attributes:
        rank: columns of ``W``.

    References:
        Ong, Nott and Smith, "Gaussian variational approximation with a factor covariance structure", 2018.
    """

    rank: int = 1
    name = "low_rank"
    autoguide = "AutoLowRankMultivariateNormal"
    about = "a low-rank"
    misses = ("correlated in more directions than its rank, or skewed",) * 2
    wider = "fit with a larger rank or guide='full_rank', "

    @property
    def noise_dim(self) -> int:
        """See ``Guide``."""
        return self.dim + self.rank

    @property
    def shape(self) -> dict[str, int]:
        """See ``Guide``."""
        return {"factor": self.dim * self.rank}

    def directions(self, params, eps):
        """``eps_d + W eps_r``."""
        return eps[: self.dim] + self._factor(params) @ eps[self.dim :]

    def shape_gradient(self, params, eps, scaled):
        """``dz_i / dW_ik = sigma_i eps_r,k``."""
        outer = self._noisy(scaled)[:, None] * eps[self.dim :][None, :]
        return {"factor": self.backend.xp.reshape(outer, (-1,))}

    def whitened(self, params, eps):
        """``(I + W W')^-1 u = u - W (I + W'W)^-1 W'u``."""
        W, u = self._factor(params), self._noisy(self.directions(params, eps))
        return u - W @ (self._inner(W) @ (u @ W))

    def widths(self, params):
        """See ``Guide``."""
        W = self._factor(params)
        return self.backend.xp.sqrt(1 + self.backend.xp.sum(W * W, axis=1))

    def entropy(self, params):
        """See ``Guide``: with ``log det (I + W'W) / 2``."""
        W = self._factor(params)
        return super().entropy(params) + 0.5 * self.backend.xp.linalg.slogdet(self._gram(W))[1]

    def entropy_gradient(self, params):
        """See ``Guide``: ``W (I + W'W)^-1`` for ``W``."""
        W = self._factor(params)
        factor = self.backend.xp.reshape(W @ self._inner(W), (-1,))
        return {**super().entropy_gradient(params), "factor": factor}

    def log_density(self, params, eps):
        """See ``Guide``."""
        xp, W = self.backend.xp, self._factor(params)
        u = self._noisy(self.directions(params, eps))
        each = self._noisy(params["log_sigma"] + 0.5 * np.log(2 * np.pi))
        square = u @ self.whitened(params, eps)
        return -xp.sum(each) - 0.5 * square - 0.5 * xp.linalg.slogdet(self._gram(W))[1]

    def part(self, block: str, where: slice) -> slice:
        """See ``Guide``; of ``factor``, the rows of those coordinates."""
        return slice(where.start * self.rank, where.stop * self.rank) if block == "factor" else where

    def start(self, mu, log_sigma, key=None) -> dict[str, np.ndarray]:
        """See ``Guide``; with a small random ``W``."""
        import jax

        key = jax.random.key(0) if key is None else jax.random.fold_in(key, 1)
        W = _FACTOR * np.asarray(jax.random.normal(key, (self.dim, self.rank), np.float32), np.float64)
        if self.noiseless is not None:
            W[np.asarray(self.noiseless)] = 0
        log_sigma = log_sigma - 0.5 * np.log1p((W * W).sum(1))  # the standard deviations asked for
        return {**super().start(mu, log_sigma), "factor": W.ravel()}

    def _factor(self, params):
        return self.backend.xp.reshape(params["factor"], (self.dim, self.rank))

    def _gram(self, W):
        """``I + W'W``."""
        return W.T @ W + self.backend.xp.eye(self.rank, dtype=W.dtype)

    def _inner(self, W):
        return self.backend.xp.linalg.inv(self._gram(W))


def low_rank(dim, backend, noiseless, sites, rank: int | None = None) -> LowRank:
    """A diagonal covariance plus one of low rank.

    Args:
        dim: dimension of ``z``.
        backend: the array library.
        noiseless: see ``Guide``.
        sites: the latent sites; not used.
        rank: of the second part; the rounded square root of ``dim`` if not given.

    Raises:
        UserError: a rank that is no whole number from 1 to ``dim``.
    """
    rank = max(1, round(dim**0.5)) if rank is None else whole("low_rank: rank", rank, 1)
    if rank > dim:
        raise UserError(f"low_rank: rank {rank}: the model has {dim} dimensions; use at most as many, or full_rank")
    return LowRank(dim, backend, noiseless, rank)


_MOST = 2**25  # entries of the factor: 5800 dimensions


@dataclass(frozen=True)
class Triangular(Gaussian):
    """``z = mu + sigma o (I + U) eps``, with ``U`` strictly lower triangular within each of some parts of ``z``.

    ``L = diag(sigma) (I + U)`` is the Cholesky factor of the covariance, with ``log_sigma`` the logarithm of its
    diagonal. The block ``lower`` holds the square matrices of the parts, row by row; entries on and above their
    diagonals stay 0. Squares are multiplied faster than packed triangles are unpacked.

    Attributes:
        parts: the parts, which divide ``z``, in order.
    """

    parts: tuple[slice, ...] = ()

    @property
    def about(self) -> str:
        """See ``Guide``."""
        return "a full-rank" if self.name == "full_rank" else "a block-diagonal"

    @property
    def misses(self) -> tuple[str, str]:
        """See ``Guide``."""
        across = "" if self.name == "full_rank" else "correlated across sites, "
        return f"{across}skewed", f"{across}skewed or heavy-tailed"

    @property
    def wider(self) -> str:
        """See ``Guide``."""
        return "" if self.name == "full_rank" else "fit with guide='full_rank', "

    @property
    def name(self) -> str:
        """See ``Guide``."""
        return "full_rank" if len(self.parts) == 1 else "block_diagonal"

    @property
    def shape(self) -> dict[str, int]:
        """See ``Guide``."""
        return {"lower": sum((part.stop - part.start) ** 2 for part in self.parts)}

    def directions(self, params, eps):
        """``(I + U) eps``."""
        noisy = self._noisy(eps)
        moved = [U @ noisy[part] for part, U in self._factors(params)]
        return eps + (moved[0] if len(moved) == 1 else self.backend.xp.concat(moved))

    def shape_gradient(self, params, eps, scaled):
        """``dz_i / dU_ij = sigma_i eps_j`` for ``j < i`` within a part."""
        xp = self.backend.xp
        rows, columns = self._noisy(scaled), self._noisy(eps)
        outer = [xp.tril(rows[part][:, None] * columns[part][None, :], k=-1) for part in self.parts]
        flat = [xp.reshape(one, (-1,)) for one in outer]
        return {"lower": flat[0] if len(flat) == 1 else xp.concat(flat)}

    def whitened(self, params, eps):
        """``(I + U)'^-1 eps``."""
        xp, noisy, out = self.backend.xp, self._noisy(eps), []
        for part, U in self._factors(params):
            unit = U + xp.eye(U.shape[0], dtype=U.dtype)
            out.append(self.backend.solve_triangular(unit, noisy[part][:, None], transposed=True)[:, 0])
        return out[0] if len(out) == 1 else xp.concat(out)

    def widths(self, params):
        """See ``Guide``."""
        xp = self.backend.xp
        widths = [xp.sqrt(1 + xp.sum(U * U, axis=1)) for _, U in self._factors(params)]
        return widths[0] if len(widths) == 1 else xp.concat(widths)

    def part(self, block: str, where: slice) -> slice:
        """See ``Guide``; of ``lower``, the rows of those coordinates."""
        if block != "lower":
            return where
        offset, ends = 0, []
        for part in self.parts:
            size = part.stop - part.start
            first, last = (min(max(at, part.start), part.stop) - part.start for at in (where.start, where.stop))
            if first < last:
                ends += [offset + first * size, offset + last * size]
            offset += size * size
        return slice(min(ends), max(ends))

    def start(self, mu, log_sigma, key=None) -> dict[str, np.ndarray]:
        """See ``Guide``: independent coordinates."""
        return {**super().start(mu, log_sigma), "lower": np.zeros(self.shape["lower"])}

    def from_factor(self, mu, factor) -> dict[str, np.ndarray]:
        """The parameters with mean ``mu`` and Cholesky factor ``factor (dim, dim)`` of the covariance."""
        sigma = np.diag(factor)
        unit = np.tril(factor / sigma[:, None], -1)
        lower = np.concatenate([unit[part, part].ravel() for part in self.parts])
        return {"mu": np.asarray(mu), "log_sigma": np.log(sigma), "lower": lower}

    def _factors(self, params):
        """The parts with their ``U``."""
        xp, offset, lower = self.backend.xp, 0, params["lower"]
        for part in self.parts:
            size = part.stop - part.start
            yield part, xp.reshape(lower[offset : offset + size * size], (size, size))
            offset += size * size


def _bounded(guide: Triangular) -> Triangular:
    """Rejects guides whose parameters would not fit in memory several times."""
    if guide.shape["lower"] > _MOST:
        raise UserError(
            f"{guide.name}: {guide.dim} dimensions would need {guide.shape['lower']} parameters; use guide='low_rank', "
            "or 'mean_field'"
        )
    return guide


def full_rank(dim, backend, noiseless, sites) -> Triangular:
    """``z = mu + L eps``, ``L`` lower triangular: any Gaussian."""
    return _bounded(Triangular(dim, backend, noiseless, (slice(0, dim),)))


def block_diagonal(dim, backend, noiseless, sites) -> Triangular:
    """A full-rank Gaussian for each latent site; sites are independent.

    Raises:
        UserError: the model names no sites.
    """
    if not sites:
        raise UserError("block_diagonal: the model names no latent variables that its blocks could be; use 'full_rank'")
    return _bounded(Triangular(dim, backend, noiseless, tuple(sites.values())))


if TYPE_CHECKING:
    from lowvar.core.backend import Backend
    from lowvar.vi.guides.amortised import Amortised

# factories (dim, backend, noiseless, sites, **options) -> Guide
GUIDES = Registry(
    "guide",
    {
        "mean_field": "lowvar.vi.guides.gaussian",
        "low_rank": "lowvar.vi.guides.gaussian",
        "full_rank": "lowvar.vi.guides.gaussian",
        "block_diagonal": "lowvar.vi.guides.gaussian",
    },
    given=("dim", "backend", "noiseless", "sites"),
    group="lowvar.guides",
)


def mean_field(dim, backend, noiseless, sites) -> MeanField:
    """Independent coordinates."""
    return MeanField(dim, backend, noiseless)


def family(guide: "str | Amortised | Callable[..., Guide] | Mapping[str, Any]") -> Callable[[Any], Guide]:
    """``problem -> its guide``, see ``VariationalProblem.family``.

    Args:
        guide: a name, an ``Amortised``, a factory, or
            ``{"guide": name, **options}``, such as ``{"guide": "low_rank", "rank": 3}``.

    Raises:
        UserError: an unknown name or option.
    """
    if is_amortised(guide):
        return guide.guide_for  # type: ignore[union-attr]
    name, options = guide_and_options(guide, "guide")
    return Family(GUIDES.get(name), options)


@dataclass(frozen=True)
class Family:
    """``problem -> its guide``, by a factory of ``GUIDES`` and options as the caller gave them."""

    factory: Callable[..., Guide]
    options: Mapping[str, Any]

    def __call__(self, problem) -> Guide:
        """The guide of a problem."""
        given = {"dim": problem.dim, "backend": problem.backend}
        return self.factory(**given, noiseless=problem.noiseless, sites=problem.sites, **self.options)


def is_amortised(guide: Any) -> bool:
    """Whether this is an ``Amortised``, whose module others do not load."""
    return isinstance(guide, getattr(sys.modules.get("lowvar.vi.guides.amortised"), "Amortised", ()))


def guide_and_options(guide, where: str) -> tuple[Any, dict[str, Any]]:
    """Name, or factory, and options of a guide, see ``family``; ``where`` is the place of ``guide``, for messages.

    Raises:
        UserError: as for ``family``.
    """
    options = dict(guide) if isinstance(guide, Mapping) else {"guide": guide}
    if "guide" not in options:
        raise UserError(f'{where} = {guide!r}: name the guide too: {{"guide": "low_rank", "rank": 3}}')
    name = options.pop("guide")
    GUIDES.entry(name, where="" if where == "guide" else where)
    if inspect.isfunction(name) and not any(
        one.kind is one.VAR_KEYWORD or key in GUIDES.given for key, one in inspect.signature(name).parameters.items()
    ):
        raise UserError(
            f"{where}: {name.__name__} is no factory of a Gaussian guide, (dim, backend, noiseless, sites, **options); "
            "guides written by hand are for NumPyro's or Pyro's own SVI: give one of "
            f"{', '.join(map(repr, GUIDES.own))}"
        )
    GUIDES.check_options(name, options, where=where)
    return name, options


def with_guide(problem, guide):
    """``problem`` with another guide; closed forms of the ELBO, which hold for the mean-field guide, are dropped.

    Args:
        problem: a ``VariationalProblem``.
        guide: as for ``family``.

    Raises:
        UserError: as for ``family``; or the problem's parameters are no guide's.
    """
    if not hasattr(problem, "family"):
        raise UserError(f"{problem.name}: its parameters are no variational distribution's: leave the guide out")
    make = family(guide)
    plain = {"exact_elbo": None, "expected_log_prior": None, "quadratic_prior": False}
    return replace(problem, family=make, **({} if make(problem).factorised else plain))
