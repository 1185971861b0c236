"""Posterior draws as ArviZ holds them."""

import pytest


def posterior_tree(draws, **groups):
    """Draws by site, ``(chains, draws, ...)``, as the installed ArviZ's object, or a skip."""
    az = pytest.importorskip("arviz")
    if hasattr(az, "InferenceData"):
        return az.from_dict(draws, **groups)
    return az.from_dict(
        {"posterior": draws, **{name: group for name, group in groups.items() if name != "save_warmup"}}
    )
