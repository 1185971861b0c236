"""The guides by name."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lowvar.errors import UserError
from lowvar.registry import Registry
from lowvar.vi.guides.guide import Gaussian, MeanField

if TYPE_CHECKING:
    from lowvar.vi.guides.amortised import Amortised

# factories (dim, backend, noiseless, sites, **options) -> Gaussian
GUIDES = Registry(
    "guide",
    {
        "mean_field": "lowvar.vi.guides.registry",
        "low_rank": "lowvar.vi.guides.low_rank",
        "full_rank": "lowvar.vi.guides.triangular",
        "block_diagonal": "lowvar.vi.guides.triangular",
    },
    given=("dim", "backend", "noiseless", "sites"),
    group="lowvar.guides",
)


def mean_field(dim, backend, noiseless, sites) -> MeanField:
    """Independent coordinates."""
    return MeanField(dim, backend, noiseless)


def family(guide: "str | Amortised | Callable[..., Gaussian] | Mapping[str, Any]") -> Callable[[Any], Gaussian]:
    """``problem -> its guide``, see ``VariationalProblem.family``.

    Args:
        guide: a name, an ``Amortised``, a factory, or
            ``{"guide": name, **options}``, such as ``{"guide": "low_rank", "rank": 3}``.

    Raises:
        UserError: an unknown name or option.
    """
    from lowvar.vi.guides.amortised import Amortised  # it imports JAX, which checking a spec does not need

    if isinstance(guide, Amortised):
        return guide.of
    name, options = checked(guide, "guide")
    factory = GUIDES.get(name)

    def make(problem):
        return factory(
            dim=problem.dim, backend=problem.backend, noiseless=problem.noiseless, sites=problem.sites, **options
        )

    return make


def checked(guide, where: str) -> tuple[Any, dict[str, Any]]:
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
