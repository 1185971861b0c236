"""An amortised guide: the local latent variables' means and scales are a function of the row's data.

Shared variables are mean field. The parameters of the function, an encoder, are shared by all rows, so a step over
``B`` rows evaluates it ``B`` times, whatever ``N`` is, and new rows need no fit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.flatten_util
import jax.numpy as jnp
import numpy as np

from lowvar.errors import UserError, one_line
from lowvar.vi.descent import Rows
from lowvar.vi.guides.forms import BLOCK
from lowvar.vi.guides.gaussian import Gaussian, MeanField

_FEW = 3  # rows on which the encoder is checked
_TOLERANCE = 1e-3  # relative difference of a row alone and among others, in single precision


@dataclass(frozen=True)
class Amortised:
    """The guide ``q(z_n) = N(loc(y_n), scale(y_n)^2)`` of latent variables in the data plate.

    ``lowvar.fit(model, data, guide=lowvar.Amortised(function, params))``. ``fit.params["amortised"]`` has the fitted
    parameters; the local sites' ``_auto_loc`` and ``_auto_scale`` are the function's values on the data.

    Args:
        function: ``(params, data, index (B,)) -> {site: (loc, log_scale)}`` in JAX, for every latent site in the data
            plate, in its unconstrained space: each ``(B, ...)``, with the rows first. ``data`` are the model's keyword
            arguments; a row's values must depend on its own data alone: ``data["y"][index]``.
        params: the start of its parameters, a tree of arrays, such as a network's weights.

    References:
        Kingma and Welling, "Auto-encoding variational Bayes", 2014, section 2.1; Gershman and Goodman, "Amortized
        inference in probabilistic reasoning", 2014.

    >>> import jax.numpy as jnp, lowvar, numpy as np, numpyro, numpyro.distributions as dist
    >>> def model(y):
    ...     mu = numpyro.sample("mu", dist.Normal(0.0, 1.0))
    ...     with numpyro.plate("rows", len(y)) as i:
    ...         z = numpyro.sample("z", dist.Normal(mu, 1.0))
    ...         numpyro.sample("y", dist.Normal(z, 1.0), obs=y[i])
    >>> def encoder(params, data, index):
    ...     y = data["y"][index]
    ...     return {"z": (params["shift"] + params["slope"] * y, jnp.full(y.shape, params["log_scale"]))}
    >>> guide = lowvar.Amortised(encoder, {"shift": 0.0, "slope": 0.0, "log_scale": 0.0})
    >>> data = {"y": np.random.default_rng(0).normal(size=50)}
    >>> fit = lowvar.fit(model, data, guide=guide, num_steps=2000, khat_samples=0, progress=False)
    >>> round(float(fit.params["amortised"]["slope"]), 1)
    0.5
    """

    function: Callable[[Any, Any, Any], Any]
    params: Any

    def __post_init__(self):
        if not callable(self.function):
            raise UserError(f"Amortised: the function must be callable, not {type(self.function).__name__}")
        leaves = jax.tree.leaves(self.params)
        if not leaves or not all(np.issubdtype(np.asarray(leaf).dtype, np.floating) for leaf in leaves):
            raise UserError("Amortised: params must be a tree of arrays of real numbers, such as {'w': ..., 'b': ...}")

    def guide_for(self, problem) -> "AmortisedGuide":
        """The guide of a ``NumPyroProblem``.

        Raises:
            UserError: no latent variables in the data plate, or a function that does not give all of theirs.
        """
        name, densities = problem.name, getattr(problem, "densities", None)
        if densities is None:
            raise UserError(f"{name}: Amortised needs a NumPyro model with latent sites in its data plate; it has none")
        flat, unravel = jax.flatten_util.ravel_pytree(
            jax.tree.map(lambda leaf: jnp.asarray(leaf, problem.dtype), self.params)
        )

        def encoder(flat, index):
            """Means and log scales of the rows' own coordinates, ``(B, d)`` each."""
            return _columns(name, densities.layout, self.function(unravel(flat), problem.data, index), index)

        guide = AmortisedGuide(
            problem.dim, problem.backend, problem.noiseless, densities.layout.rows, encoder, np.asarray(flat), unravel,
            self,
        )  # fmt: skip
        _check(problem, encoder, flat)
        return guide


def _columns(name, layout, values, index):
    if not isinstance(values, dict) or set(values) != set(layout.sites):
        given = ", ".join(map(str, values)) if isinstance(values, dict) else type(values).__name__
        raise UserError(
            f"{name}: Amortised: the function must return a dict {{site: (loc, log_scale)}} with the sites "
            f"{', '.join(layout.sites)}; it returns {given}"
        )
    parts: tuple[list, list] = ([], [])
    for site, shape in layout.sites.items():
        pair = values[site]
        shapes = [jnp.shape(one) for one in pair] if isinstance(pair, tuple | list) else []
        rows = index.shape[0]
        wanted = (rows, *shape)
        if len(shapes) != 2 or any(shape != wanted for shape in shapes):
            raise UserError(
                f"{name}: Amortised: {site!r} needs (loc, log_scale), each of shape {wanted} for {rows} rows, "
                f"not {' and '.join(map(str, shapes)) or _in_words(pair)}"
            )
        for part, one in zip(parts, pair, strict=True):
            part.append(jnp.reshape(one, (rows, -1)))
    return tuple(jnp.concatenate(part, axis=1) for part in parts)


def _in_words(value) -> str:
    return f"one array of shape {value.shape}" if hasattr(value, "shape") else type(value).__name__


def _check(problem, encoder, flat) -> None:
    """Runs the function on a few rows, together and one by one."""
    name, N, program = problem.name, problem.N, problem.backend.jit(encoder)
    index = jnp.asarray(np.unique(np.linspace(0, N - 1, _FEW).astype(np.int32)))
    try:
        together = np.stack(program(flat, index))
        alone = np.concatenate([np.stack(program(flat, index[i : i + 1])) for i in range(len(index))], axis=1)
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name}: Amortised: the function cannot be run on these data: {one_line(error)}") from error
    if not np.isfinite(together).all():
        raise UserError(f"{name}: Amortised: the function's values are not finite at its first parameters")
    if not np.allclose(together, alone, rtol=_TOLERANCE, atol=_TOLERANCE):
        raise UserError(
            f"{name}: Amortised: the function's values of a row depend on the other rows of its batch; leave out what "
            "mixes rows, such as batch normalisation"
        )


def _of_all_rows(name: str) -> Any:
    def method(self, params, *eps):
        """See ``Guide``, for all rows."""
        return getattr(MeanField(self.dim, self.backend, self.noiseless), name)(self.mean_field(params), *eps)

    return method


@dataclass(frozen=True)
class AmortisedGuide(Gaussian):
    """Independent coordinates, whose means and scales in the rows are an encoder's.

    Parameters: ``mu (D,)`` and ``log_sigma (D,)`` of the shared variables, and ``amortised``, the encoder's as a
    vector.

    Attributes:
        rows: the coordinates of shared variables and of rows.
        encoder: ``(vector, index (B,)) -> means and log scales, (B, d) each``.
        first: the start of the vector.
        unravel: ``vector -> the user's parameters``.
        source: the user's ``Amortised``.
    """

    rows: Rows = None  # type: ignore[assignment]
    encoder: Any = None
    first: Any = field(default=None, repr=False)
    unravel: Any = None
    source: Any = field(default=None, repr=False)

    name = BLOCK
    autoguide = "AutoNormal"
    factorised = True
    amortised = True
    estimator = "cv"
    about = "an amortised mean-field"
    misses = ("correlated or skewed", "correlated, skewed or heavy-tailed")
    wider = "fit a larger encoder or guide='mean_field', "

    @property
    def blocks(self) -> dict[str, int]:
        """See ``Guide``."""
        D = len(self.rows.shared)
        return {"mu": D, "log_sigma": D, BLOCK: len(self.first)}

    def of_batch(self, params, index):
        """The mean-field parameters of a batch, ``{"mu": (rows.dim_of(B),), "log_sigma": ...}``."""
        loc, log_scale = self.encoder(params[BLOCK], index)
        return {
            "mu": self.rows.joined(params["mu"], loc),
            "log_sigma": self.rows.joined(params["log_sigma"], log_scale),
        }

    def mean_field(self, params):
        """The mean-field parameters of all rows, ``{"mu": (dim,), "log_sigma": (dim,)}``."""
        index = jnp.arange(len(self.rows.own), dtype=jnp.int32)
        at = self.rows.coordinates(index)
        return {block: jnp.zeros_like(one).at[at].set(one) for block, one in self.of_batch(params, index).items()}

    def start(self, mu, log_sigma, key=None) -> dict[str, np.ndarray]:
        """See ``Guide``; of ``mu`` and ``log_sigma``, the shared coordinates."""
        shared = {"mu": np.asarray(mu)[self.rows.shared], "log_sigma": np.asarray(log_sigma)[self.rows.shared]}
        return {**shared, BLOCK: self.first}

    point, transform, scale, entropy, log_density = map(
        _of_all_rows, ("point", "transform", "scale", "entropy", "log_density")
    )
