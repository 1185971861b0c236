"""Black-box search: distributions that concentrate on small values."""

from lowvar.core.backend import BACKENDS, HOST
from lowvar.registry import Registry, row

# factories (backend, domain, population=None, **options) -> SearchSolver, each in a module of its name; a new search of
# lowvar's needs one file and one row here
_BACKENDS = (*BACKENDS, HOST)
OURS = {
    **{
        name: row(f"lowvar.search.solvers.{name}", backends=_BACKENDS)
        for name in (
            "ingo", "ingo_step", "fast_ingo", "fast_ingo_adaptive", "ingo_cma", "ingo_path",
        )
    },
    "ingo_binary": row("lowvar.search.solvers.discrete", domains=("binary",), backends=_BACKENDS),
    "ingo_categorical": row("lowvar.search.solvers.discrete", domains=("categorical",), backends=_BACKENDS),
}  # fmt: skip

# `domains`: kinds of domain that it searches; `backends`: those it runs on; `driven`: whether it is a stateful object
# from (domain, x0, sigma0, population=None, seed=0, **options) rather than a SearchSolver, with `population`, `mean`,
# `spread`, `propose() -> points` and `learn(points, values)`; `gradients`: whether it
# needs gradients of the function
SEARCH = Registry(
    "search",
    OURS,
    given=("backend", "domain", "x0", "sigma0", "seed"),
    about={"domains": ("real",), "backends": BACKENDS, "driven": False, "gradients": False},
    group="lowvar.searches",
)
