"""Optimizers of other projects behind lowvar's interface, for comparisons in the same runs.

A compiled peer is a ``SearchSolver``, pure functions of JAX; a driven peer is a ``Driven``, asked and told from Python.
"""

from lowvar.registry import row


def _peer(module: str, name: str, package: str, **about):
    target = f"lowvar.solvers.search.peers.{module}:{name}"
    return row(target, packages=(package,), extra="peers", backends=("jax",), **about)


PEERS = {
    "cmaes": _peer("cmaes", "cmaes", "cmaes", driven=True),
    "evosax_open_es": _peer("evosax_open_es", "evosax_open_es", "evosax"),
    "evosax_snes": _peer("evosax_snes", "evosax_snes", "evosax"),
    "evosax_xnes": _peer("evosax_xnes", "evosax_xnes", "evosax"),
    "pycma": _peer("pycma", "pycma", "cma", driven=True),
    "pymoo_ga": _peer("pymoo_ga", "pymoo_ga", "pymoo", driven=True, domains=("binary", "categorical")),
    "sep_cmaes": _peer("cmaes", "sep_cmaes", "cmaes", driven=True),
}
