"""Posterior draws as ArviZ holds them."""

import inspect

import pytest


def posterior_tree(draws, **groups):
    """Draws by site, ``(chains, draws, ...)``, as the installed ArviZ's object, or a skip."""
    az = pytest.importorskip("arviz")
    if "posterior" in inspect.signature(az.from_dict).parameters:  # before ArviZ 1.0
        return az.from_dict(draws, **groups)
    return az.from_dict(
        {"posterior": draws, **{name: group for name, group in groups.items() if name != "save_warmup"}}
    )
