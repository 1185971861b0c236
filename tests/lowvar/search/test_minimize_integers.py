"""Whole numbers among the variables of ``lowvar.minimize``, and unlike inputs."""

import numpy as np
import pytest
from searched import quiet

from lowvar.search.solvers.box import Box
from lowvar.search.solvers.integers import Margin

DIM = 10
INTEGERS = np.arange(DIM) >= 5


def fine(x):
    """Coarse in its first five coordinates, fine in the others: those are settled last, in one of many cells."""
    return float(1e4 * (x[:5] ** 2).sum() + ((x[5:] - 3) ** 2).sum())


def starts(seed):
    return np.random.default_rng(seed).uniform(1, 5, DIM)


@pytest.mark.long
@pytest.mark.parametrize("seed", [0, 1])
def test_a_search_does_not_stall_on_integers(seed):
    """Where rounding alone stalls, which is why there is a margin."""
    where = np.flatnonzero(INTEGERS)
    found = quiet(fine, starts(seed), 1.0, budget=8000, target=1e-10, seed=seed, integers=where)
    assert found.status == "target"
    assert (found.x[INTEGERS] == 3).all()


@pytest.mark.filterwarnings("ignore")
def test_other_searches_of_ours_move_too():
    result = quiet(fine, starts(0), 1.0, "fast_ingo", budget=20_000, target=1e-6, integers=INTEGERS)
    assert result.status == "target"


def test_f_sees_whole_numbers_within_bounds_and_all_of_them():
    seen = []

    def f(x):
        seen.append(x.copy())
        return float(((x - [2, 0.3, 9]) ** 2).sum())

    low, high = np.array([-1.5, -1, 4]), np.array([3.9, 1, 4])
    result = quiet(f, [0, 0, 4], 2.0, budget=3000, target=25 + 1e-8, bounds=(low, high), integers=[0, -1])
    points = np.array(seen)
    assert (points[:, [0, 2]] == np.rint(points[:, [0, 2]])).all()
    assert set(points[:, 0]) == {-1, 0, 1, 2, 3}
    assert set(points[:, 2]) == {4}
    assert ((points >= low) & (points <= high)).all()
    assert result.status == "target"
    assert result.x[0] == result.mean[0] == 2


def test_a_minimum_in_integers_is_recognised():
    result = quiet(lambda x: float(np.abs(x - 17).sum()), np.zeros(4, int), 3, budget=5000, integers=True)
    assert (result.status, result.fun) == ("converged", 0.0)
    assert "its neighbours in single integers among them" in result.message
    many = quiet(
        lambda x: float((1 - x).sum()), np.full(20, 0.5), 0.5, budget=5000, integers=True, bounds=(0, 1), target=0
    )
    assert many.status == "target"


def test_cells_end_where_the_rounded_point_changes():
    """Bounded on both sides, on one, on none, and to one value; a step to either side of an end tells."""
    low, high = np.array([0, 0, -np.inf, 0, -np.inf, 0]), np.array([5, 1, 3, np.inf, np.inf, 0])
    box = Box((low, high), 6, 1.0, np.ones(6, bool))

    def whole(z):
        return np.clip(np.rint(box.transform(z)), *box.inner)

    for z in np.random.default_rng(0).uniform(-12, 12, (100, 6)):
        ends = box.cell(z)
        assert np.isinf(ends[:, 5]).all()
        for j in range(5):
            for sign, distance in zip((-1, 1), ends[:, j], strict=True):
                step = sign * np.eye(6)[j]
                assert whole(z + (distance - 1e-9) * step)[j] == whole(z)[j], (j, z[j])
                assert whole(z + (distance + 1e-9) * step)[j] != whole(z)[j], (j, z[j])


def test_the_margin_is_kept_and_nothing_else_is_changed():
    """A coordinate leaves its cell with the least probability after a collapse; a wide one is left as it is."""
    from scipy.special import ndtr

    margin = Margin(np.array([True, True, False]), np.array([2.3, -1.0, 0.4]), 10, None)
    margin.learn(np.array([2.3, -1.0, 0.4]), np.array([1e-6, 3.0, 1e-6]))
    mean, z = margin.mean(), np.array([2.3, -1.0, 0.4])
    scale = (margin.points(z + 1.0) - margin.points(z)) * [1e-6, 3.0, 1e-6]
    below, above = (mean[0] - 1.5) / scale[0], (2.5 - mean[0]) / scale[0]
    assert min(ndtr(-below), ndtr(-above)) == pytest.approx(0.5 / 30, rel=1e-9)
    assert mean[1:].tolist() == [-1.0, 0.4]
    assert scale[1:] == pytest.approx([3.0, 1e-6])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("scale", [1e300, 1e-300])
def test_huge_and_tiny_values_are_searched_without_a_warning(scale):
    result = quiet(lambda x: scale * float(x @ x), np.ones(4), 0.5, budget=3000, target=scale * 1e-4)
    assert result.status == "target"


def test_a_minimum_in_integers_that_the_budget_leaves_unchecked_is_not_called_a_failure():
    """The last quarter of the generations finds no more, as the minimum is found."""
    result = quiet(
        lambda x: float(((x - 3) ** 2).sum()), np.full(6, 50.0), 1.0, budget=1020, population=12, integers=True
    )
    assert (result.status, result.x.tolist()) == ("budget", [3] * 6)
    assert any("x may be a minimum, whose neighbours a larger budget checks" in n for n in result.notes), result.notes


def test_noise_at_a_bound_ends_without_a_warning():
    """All points are equal there, so the search shrinks until its deviations are rounding."""
    rng = np.random.default_rng(0)
    f = lambda x: float(((x - 10) ** 2).sum() + 0.5 * rng.normal())  # noqa: E731
    result = quiet(f, np.ones(3), 0.5, budget=4000, integers=True, bounds=(0, 5))
    assert result.status == "stalled"
    assert "its whole numbers no longer change" in result.message
    assert result.mean.tolist() == [5, 5, 5]
    assert abs(result.mean_fun - 75) < 5 * result.mean_fun_se < 1
