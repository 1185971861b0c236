"""Low-variance estimation: where the noise of a stochastic gradient comes from, and which estimator removes it.

``lowvar.fit``, ``decompose``, ``integrate`` and ``minimize`` are loaded when first used, so ``import lowvar`` is cheap.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lowvar.api.decompose import Decomposition, decompose
    from lowvar.api.fit import Fit, fit, load
    from lowvar.api.integral import IntegralResult, integrate
    from lowvar.api.joint_elbo import JointELBO
    from lowvar.api.own_loop import batch_noise, estimator, problem
    from lowvar.api.scores import scores
    from lowvar.api.search import Generation, SearchResult, minimize
    from lowvar.api.searcher import Searcher
    from lowvar.datasets.rows import Parquet
    from lowvar.errors import UserError
    from lowvar.problems.amortised import Amortised
    from lowvar.problems.torch_model import TorchModel

__version__ = "0.1.0"
__all__ = [
    "Amortised",
    "Decomposition",
    "Fit",
    "Generation",
    "IntegralResult",
    "JointELBO",
    "Parquet",
    "SearchResult",
    "Searcher",
    "TorchModel",
    "UserError",
    "__version__",
    "batch_noise",
    "decompose",
    "estimator",
    "fit",
    "integrate",
    "load",
    "minimize",
    "problem",
    "scores",
]

_HOMES = {
    **dict.fromkeys(("Decomposition", "decompose"), "api.decompose"),
    **dict.fromkeys(("Fit", "fit", "load"), "api.fit"),
    **dict.fromkeys(("IntegralResult", "integrate"), "api.integral"),
    **dict.fromkeys(("Generation", "SearchResult", "minimize"), "api.search"),
    **dict.fromkeys(("batch_noise", "estimator", "problem"), "api.own_loop"),
    "JointELBO": "api.joint_elbo",
    "Parquet": "datasets.rows",
    "Searcher": "api.searcher",
    "Amortised": "problems.amortised",
    "TorchModel": "problems.torch_model",
    "scores": "api.scores",
    "UserError": "errors",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'lowvar' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"lowvar.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
