"""The interval of a median keeps its promise whatever the tails."""

import numpy as np
import pytest
from scipy.stats import binom

from lowvar.core.intervals import rank_interval

RUNS = 2000
DRAWS = {
    "cauchy": (lambda rng, n: rng.standard_cauchy((RUNS, n)), 0.0),
    "lognormal": (lambda rng, n: np.exp(3 * rng.standard_normal((RUNS, n))), 1.0),
    "normal": (lambda rng, n: rng.standard_normal((RUNS, n)), 0.0),
}


@pytest.mark.parametrize(("n", "rank", "law"), [(6, 1, "cauchy"), (10, 2, "lognormal"), (20, 6, "normal")])
def test_rank_intervals_cover_the_median_with_their_exact_probability(n, rank, law):
    draw, median = DRAWS[law]
    ends = np.array([rank_interval(sample) for sample in draw(np.random.default_rng(n), n)])
    covered = ((ends[:, 1] <= median) & (median <= ends[:, 2])).mean()
    exact = 1 - 2 * binom.cdf(rank - 1, n, 0.5)
    assert exact >= 0.95
    assert abs(covered - exact) < 5 * np.sqrt(exact * (1 - exact) / RUNS), (covered, exact)


def test_infinite_values_are_ranked_and_nan_is_not():
    assert rank_interval([1.0, 2.0, 3.0, 4.0, 5.0, np.inf]) == (3.5, 1.0, np.inf)
    assert np.isnan(rank_interval([1.0, 2.0, 3.0, 4.0, 5.0, np.nan])).all()
    middle, low, high = rank_interval([1.0, 2.0, 3.0])
    assert middle == 2.0
    assert np.isnan([low, high]).all()
