"""A ``TorchModel`` as a ``VariationalProblem`` in PyTorch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from lowvar.core.backend import get
from lowvar.core.rows import native
from lowvar.errors import UserError
from lowvar.vi.guides import forms as guide_forms
from lowvar.vi.guides.forms import fill, random_start
from lowvar.vi.guides.gaussian import LowRank, MeanField, family, is_amortised
from lowvar.vi.torch.checks import TorchCheck, dtype_of
from lowvar.vi.torch.functions import functions_of, traceable
from lowvar.vi.variational import VariationalProblem

_SCALE = 0.1  # standard deviations of the guide at the start, as AutoNormal's


@dataclass(frozen=True, eq=False)
class TorchProblem(VariationalProblem):
    """A ``VariationalProblem`` with its ``TorchModel``.

    Attributes:
        model: the model.
        start: start of a fit, the guide's parameters.
        data: empty: the model's functions hold their data.
        params: empty: there are no point estimates.
        plate: what batches are drawn from.
        remarks: empty: a NumPyro model has sentences here on what was subsampled.
    """

    model: Any = None
    start: Mapping[str, np.ndarray] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    params: tuple[str, ...] = ()
    plate: str = "rows"
    remarks: tuple[str, ...] = ()
    most_rows = 2**14  # each chunk of a full pass is traced

    def unravel(self, z):
        """``z (..., dim) -> {site: unconstrained value (..., *shape)}``."""
        return {
            site: z[..., where].reshape((*z.shape[:-1], *self.model.sites[site])) for site, where in self.sites.items()
        }

    @property
    def latent(self) -> tuple[str, ...]:
        """Names of the latent sites, in the order of ``z``."""
        return tuple(self.sites)

    def named(self, guide_params) -> dict[str, torch.Tensor]:
        """The guide's parameters under the names of NumPyro's guides, as tensors in the sites' unconstrained shapes."""
        vectors = {block: self.backend.asarray(value) for block, value in guide_params.items()}
        written = guide_forms.form_of(self.guide).written(self, vectors)
        return {name: self.backend.asarray(value) for name, value in written.items()}

    @property
    def names(self) -> list[str]:
        """The names of the guide's parameters in ``named``."""
        return guide_forms.form_of(self.guide).names(self)

    @property
    def constrain(self) -> Callable[[torch.Tensor], dict[str, torch.Tensor]]:
        """The values of the latent sites at a point ``z (dim,)``."""
        return self.model.constrain or self.unravel

    def draws(self, z) -> dict[str, torch.Tensor]:
        """Values of the latent sites, ``{site: (S, ...)}``, at the points ``z (S, dim)``."""
        with torch.no_grad(), traceable():
            return dict(torch.func.vmap(self.constrain)(torch.as_tensor(z)))

    def auto_guide(self, guide_params):
        """The guide over ``z (dim,)``, a normal of ``torch.distributions``."""
        vectors = {block: self.backend.asarray(value) for block, value in guide_params.items()}
        mu, sigma = vectors["mu"], torch.exp(vectors["log_sigma"])
        if isinstance(self.guide, MeanField):
            return torch.distributions.Independent(torch.distributions.Normal(mu, sigma), 1)
        if isinstance(self.guide, LowRank):
            factor = sigma[:, None] * vectors["factor"].reshape(self.dim, -1)
            return torch.distributions.LowRankMultivariateNormal(mu, factor, sigma**2)
        factor = self.backend.asarray(guide_forms.form_of(self.guide).written(self, vectors)[guide_forms.TRIL])
        return torch.distributions.MultivariateNormal(mu, scale_tril=factor)


def problem_of(model, *, name, init, init_is, key, guide) -> TorchProblem:
    """The problem of a model; arguments as for ``TorchModel.problem``."""
    sites, offset = {}, 0
    for site, shape in model.sites.items():
        size = int(np.prod(shape))
        sites[site] = slice(offset, offset + size)
        offset += size
    if offset != model.dim:
        raise UserError(f"{name}: its sites have {offset} entries, and dim is {model.dim}")
    if is_amortised(guide):
        raise UserError(f"{name}: Amortised needs a NumPyro model with latent variables in the data plate")
    likelihood, prior = functions_of(model)
    where = f"{name}: {init_is}"
    init, joint = guide_forms.split(init, sites, where)
    centre, log_sigma, near = _start(model, name, sites, init, where)
    problem = TorchProblem(
        name, get("torch"), model.N, model.dim, likelihood, prior, sites=sites, dtype=dtype_of(model, name, centre),
        model=model, family=family(guide), subsample_size=model.subsample_size,
    )  # fmt: skip
    return random_start(problem, centre, log_sigma, joint, near, key, where, TorchCheck())


def _start(model, name, sites, init, where):
    """The start without its random part: means and logarithms of standard deviations, each ``(dim,)``.

    Also the names of the sites that have such a part: those whose means neither the model nor ``init`` sets.
    """
    mu, log_sigma = np.zeros(model.dim), np.full(model.dim, np.log(_SCALE))
    if model.mean is not None:
        mu = np.asarray(torch.as_tensor(model.mean).detach().cpu(), float).copy()
    if not isinstance(init, Mapping | None):
        raise UserError(f"{name}: init: give a dict of values by site, or a Fit, not {type(init).__name__}")

    def unconstrained(site, value):
        tensor = torch.as_tensor(native(value)).detach().cpu().double()
        return model.unconstrain[site](tensor) if site in model.unconstrain else tensor

    given = fill(mu, log_sigma, init or {}, sites, unconstrained, where=where)
    return mu, log_sigma, [] if model.mean is not None else [site for site in sites if site not in given]
