"""A target decides whether a search succeeded, whatever else ended it."""

import numpy as np
import pytest

import lowvar


@pytest.mark.parametrize(("target", "success"), [(0.5, False), (1.5, True), (None, True)])
def test_converged_short_of_the_target_is_no_success(target, success):
    """The minimum is 1."""
    found = lowvar.minimize(lambda x: 1 + (x**2).sum(), np.full(2, 0.3), 0.3, target=target, budget=5000, seed=0)
    assert found.status == ("target" if target == 1.5 else "converged")
    assert found.success is success
