"""The public face, each half loaded when first used: Bayesian models, and black-box search."""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lowvar.api.search import Generation, SearchResult, minimize
    from lowvar.api.searcher import Searcher
    from lowvar.api.variational import Decomposition, Fit, decompose, fit

__all__ = ["Decomposition", "Fit", "Generation", "SearchResult", "Searcher", "decompose", "fit", "minimize"]

_HOMES = {
    **dict.fromkeys(("Decomposition", "Fit", "decompose", "fit"), "variational"),
    **dict.fromkeys(("Generation", "SearchResult", "minimize"), "search"),
    "Searcher": "searcher",
}


def __getattr__(name: str):
    if name not in _HOMES:
        raise AttributeError(f"module 'lowvar.api' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"lowvar.api.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
