"""Optimizers of other projects, driven like ours, so that they can be compared in the same runs."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from lowvar.errors import UserError, unknown_name
from lowvar.problems.blackbox.problem import Kind


@dataclass(frozen=True)
class Peer:
    """An optimizer of another project.

    Attributes:
        module: of this package, with the factory under the peer's name.
        kind: ``compiled``: a factory ``(backend, domain, population=None, **options) -> SearchSolver``, pure
            functions of JAX; ``driven``: ``(domain, x0, sigma0, population=None, seed=0, **options) -> Driven``,
            an object that is asked and told from Python.
        domains: kinds of domain that it searches.
        package: what has to be importable.
    """

    module: str
    kind: Literal["compiled", "driven"]
    domains: tuple[Kind, ...]
    package: str


PEERS = {
    "cmaes": Peer("cmaes", "driven", ("real",), "cmaes"),
    "evosax_open_es": Peer("evosax_open_es", "compiled", ("real",), "evosax"),
    "evosax_snes": Peer("evosax_snes", "compiled", ("real",), "evosax"),
    "evosax_xnes": Peer("evosax_xnes", "compiled", ("real",), "evosax"),
    "pycma": Peer("pycma", "driven", ("real",), "cma"),
    "pymoo_ga": Peer("pymoo_ga", "driven", ("binary", "categorical"), "pymoo"),
    "sep_cmaes": Peer("cmaes", "driven", ("real",), "cmaes"),
}


def peer(name: str) -> Callable[..., Any]:
    """The factory of the peer called ``name``; its package is imported here and nowhere earlier.

    Raises:
        UserError: the name is unknown, or the package is not installed.
    """
    if name not in PEERS:
        raise unknown_name("peer", name, PEERS)
    known = PEERS[name]
    try:
        importlib.import_module(known.package)
    except ImportError as missing:
        raise UserError(f"peer {name!r} needs {known.package}: pip install 'lowvar[peers]'") from missing
    return getattr(importlib.import_module(f"{__name__}.{known.module}"), name)
