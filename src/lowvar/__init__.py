"""Low-variance estimation: where the noise of a stochastic gradient comes from, and which estimator removes it.

``lowvar.fit``, ``decompose``, ``integrate`` and ``minimize`` are loaded when first used, so ``import lowvar`` is cheap.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lowvar.core.rows import Parquet
    from lowvar.errors import UserError
    from lowvar.integrals.integrate import IntegralResult, integrate
    from lowvar.integrals.scores import scores
    from lowvar.integrals.summary import summary
    from lowvar.search.minimize import Generation, SearchResult, minimize
    from lowvar.search.searcher import Searcher
    from lowvar.vi.calibrate import Calibration, calibrate
    from lowvar.vi.decompose import Decomposition, decompose
    from lowvar.vi.fit import Fit, fit, load
    from lowvar.vi.guides.amortised import Amortised
    from lowvar.vi.joint_elbo import JointELBO
    from lowvar.vi.own_loop import batch_noise, estimator, problem
    from lowvar.vi.torch.model import TorchModel

__version__ = "0.1.0"
__all__ = [
    "Amortised",
    "Calibration",
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
    "calibrate",
    "decompose",
    "estimator",
    "fit",
    "integrate",
    "load",
    "minimize",
    "problem",
    "scores",
    "summary",
]

_HOMES = {
    **dict.fromkeys(("Calibration", "calibrate"), "vi.calibrate"),
    **dict.fromkeys(("Decomposition", "decompose"), "vi.decompose"),
    **dict.fromkeys(("Fit", "fit", "load"), "vi.fit"),
    **dict.fromkeys(("IntegralResult", "integrate"), "integrals.integrate"),
    **dict.fromkeys(("Generation", "SearchResult", "minimize"), "search.minimize"),
    **dict.fromkeys(("batch_noise", "estimator", "problem"), "vi.own_loop"),
    "JointELBO": "vi.joint_elbo",
    "Parquet": "core.rows",
    "Searcher": "search.searcher",
    "Amortised": "vi.guides.amortised",
    "TorchModel": "vi.torch.model",
    "scores": "integrals.scores",
    "summary": "integrals.summary",
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
