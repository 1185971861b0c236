"""``lowvar.minimize`` on noisy functions: what it says of the noise and of ``f`` at the mean."""

import numpy as np
import pytest
from searched import X0, quiet, sphere

import lowvar
from lowvar.search.minimize import Average
from lowvar.search.noise import dominated, drift, error_of_mean


class Noisy:
    """``|x - 1|^2 + 1`` with normal noise."""

    def __init__(self, sd, seed=0):
        self.sd, self.rng, self.calls = sd, np.random.default_rng(seed), 0

    def __call__(self, x):
        self.calls += 1
        return sphere(x - 1) + 1 + self.sd * self.rng.normal()


def test_noise_is_found_and_the_mean_is_judged():
    """The interval of two standard errors holds the truth, where ``fun`` is always too low."""
    f = Noisy(0.5)
    result = quiet(f, np.zeros(4), 0.5, budget=1500)
    truth = sphere(result.mean - 1) + 1
    assert abs(result.mean_fun - truth) <= 2 * result.mean_fun_se
    assert (result.status, result.success) == ("budget", False)
    assert f.calls == result.nfev <= 1500
    assert result.fun < 0.9
    assert truth < 1.25
    assert 0.3 < result.noise < 0.7
    assert "f is noisy: fun is the smallest of many noisy values and biased low" in result.message
    lines = {line.split()[0]: line for line in repr(result).splitlines()[1:]}
    assert np.array2string(result.mean, precision=6) in lines["mean"]
    assert np.array2string(result.x, precision=6) in lines["x"]
    assert "mean_fun" in lines
    assert "noise" in repr(result)


@pytest.mark.parametrize("method", ["auto", pytest.param("ingo_path", marks=pytest.mark.long)])
def test_one_noisy_generation_does_not_throw_the_mean_away(method):
    """Three variables, eight points a generation: ``I + beta M`` is indefinite in some generations of these runs."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        result = quiet(lambda v: sphere(v - 1.3) + rng.normal(), np.zeros(3), 1.0, method, budget=600, seed=seed)
        assert sphere(result.mean - 1.3) < 1.5
        assert result.mean_fun < 2.5


def test_noise_that_stays_changes_the_search():
    f = Noisy(0.5)
    result = quiet(f, np.zeros(4), 0.5, budget=6000)
    assert result.method == "ingo_path"
    assert f.calls == result.nfev <= 6000
    assert sphere(result.mean - 1) < 0.1


def test_noise_that_vanishes_at_the_minimum_keeps_the_fast_search():
    rng = np.random.default_rng(0)
    f = lambda v: sphere(v - 1.3) * np.exp(0.2 * rng.normal())  # noqa: E731
    result = quiet(f, np.zeros(3), 1.0, budget=1200)
    assert result.method == "ingo_cma"
    assert "f is noisy" in result.message
    assert sphere(result.mean - 1.3) < 1e-6


def test_a_mean_above_the_start_is_told():
    rng, calls = np.random.default_rng(0), []

    def rising(v):
        """Each call adds to the noise: whatever is found, the mean ends above the start."""
        calls.append(1)
        return sphere(v) + len(calls) + rng.normal()

    result = quiet(rising, np.ones(3), 0.1, budget=400)
    assert any("f at the mean is above" in note for note in result.notes)


@pytest.mark.parametrize("rise", [0, 1])
def test_a_mean_above_earlier_values_is_told(rise):
    """Values fall from 100 to 5 within 100 calls, and may rise again from the 200th on, to below the first ones."""
    rng, calls = np.random.default_rng(0), []

    def turning(v):
        calls.append(1)
        return sphere(v) + max(100 - len(calls), 5, rise * (len(calls) - 200)) + rng.normal()

    result = quiet(turning, np.ones(3), 0.1, budget=260)
    assert result.mean_fun < 70
    assert any("f at the mean is above" in note for note in result.notes) == (rise > 0)


def test_mirror_images_beyond_bounds_do_not_draw_a_noisy_search_away():
    """A ridge, to whose mirror images a search may go."""
    f = lambda x: 10 * (x.sum() - 3) ** 2 + 0.01 * ((x - 2) ** 2).sum()  # noqa: E731
    for seed in range(10):
        rng = np.random.default_rng(seed)
        result = quiet(lambda x, rng=rng: f(x) + rng.normal(), [-2.0, -2], 1.5, bounds=(-5, 5), budget=3000, seed=seed)
        assert f(result.mean) < 3, (seed, result)
        assert result.sigma < 55 / 3


@pytest.mark.parametrize("dim", [1, 2])
def test_a_search_within_bounds_is_at_most_a_third_as_wide(dim):
    """Random values, which make some of these searches five times as wide without the limit."""
    widest = 0.0
    for seed in range(5):
        for method in ("ingo_cma", "ingo_path"):
            rng = np.random.default_rng(seed)
            search = lowvar.Searcher(np.full(dim, -2.0), 1.5, method, bounds=(-5, 5), seed=seed)
            for _ in range(300):
                search.tell(rng.normal(size=len(search.ask())))
                widest = max(widest, search.sigma)
    assert 3 < widest < 10 / 3 * (1 + 1e-9)


@pytest.mark.parametrize("dim", [2, 5])
def test_random_values_leave_the_width_of_a_search(dim):
    """In 100 generations, INGO's step would make it 5 and 2 times as wide."""
    for method in ("ingo_cma", "ingo_path"):
        logs = []
        for seed in range(30):
            rng, search = np.random.default_rng(seed), lowvar.Searcher(np.zeros(dim), 1.0, method, seed=seed)
            for _ in range(100):
                search.tell(rng.normal(size=len(search.ask())))
            logs.append(np.log(search.sigma))
        error = np.std(logs, ddof=1) / np.sqrt(len(logs))
        assert -1.6 - 3 * error < np.mean(logs) < 0.15 + 3 * error, (method, np.mean(logs), error)


@pytest.mark.parametrize("noisy", [True, None])
def test_noise_alone_is_told(noisy):
    """The mean stays where it was, but for a random walk; no message speaks of a fall of ``f``."""
    for dim in (2, 5):
        for seed in range(3):
            rng = np.random.default_rng(seed)
            result = quiet(lambda x, rng=rng: 3 + rng.normal(), np.zeros(dim), 1.0, budget=4000, noisy=noisy, seed=seed)
            assert np.linalg.norm(result.mean) < 300
            assert result.status in ("budget", "stalled")
            assert "unbounded" not in result.message
            assert any("no differences of f above the noise" in note for note in result.notes)
            assert not any("moved away" in note for note in result.notes)


def test_a_discrete_search_is_not_sent_to_a_setting_that_it_refuses():
    rng = np.random.default_rng(0)
    result = quiet(lambda x: rng.normal(), None, dim=4, domain="binary", budget=600, noisy=True)
    (note,) = [note for note in result.notes if "no differences" in note]
    assert "sigma0" not in note


@pytest.mark.parametrize("start", [0.0, 100.0])
def test_a_search_that_found_differences_does_not_say_that_it_saw_none(start):
    for dim in (2, 10):
        rng = np.random.default_rng(0)
        result = quiet(
            lambda x, rng=rng: 1e6 ** (np.arange(len(x)) / (len(x) - 1)) @ (x - 3) ** 2 + rng.normal(),
            np.full(dim, start), 1.0, budget=600,
        )  # fmt: skip
        assert not any("no differences" in note for note in result.notes)


def test_a_constant_that_is_said_to_be_noisy_is_a_plateau():
    result = quiet(lambda x: 3.0, np.zeros(2), 1.0, budget=5000, noisy=True)
    assert (result.status, result.noise) == ("stalled", 0.0)
    assert "plateau" in result.message
    assert result.nfev < 1000


def test_a_target_of_a_noisy_function_is_not_reached_by_luck():
    lucky = quiet(Noisy(0.5), np.zeros(4), 0.5, budget=1500, target=0.8)  # below the minimum
    assert lucky.fun < 0.8
    assert (lucky.status, lucky.success) == ("budget", False)
    assert "the target 0.8 is not shown to be reached" in lucky.message
    true = quiet(Noisy(0.5), np.zeros(4), 0.5, budget=20_000, target=1.3)
    assert (true.status, true.success) == ("target", True)
    assert true.nfev < 10_000
    assert sphere(true.mean - 1) + 1 < 1.3


def test_a_mean_of_an_earlier_look_is_none_of_the_result():
    result = quiet(Noisy(0.5), np.zeros(4), 0.5, budget=1500, target=0.8, callback=lambda now: now.iteration == 40)
    assert result.status == "callback"
    assert np.isnan(result.mean_fun)


@pytest.mark.parametrize("batched", [False, True])
def test_a_target_that_the_mean_does_not_reach_is_seldom_reported_as_reached(batched):
    """``f`` is 0 everywhere, but for the noise, and the target just below: at most one search in a hundred is wrong.

    More than two wrong ones of 40 have a probability of 0.008.
    """
    wrong = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        flat = (lambda x, rng=rng: rng.normal(size=len(x))) if batched else (lambda x, rng=rng: rng.normal())
        wrong += quiet(flat, np.zeros(2), 1.0, budget=600, target=-1e-9, seed=seed, batched=batched).success
    assert wrong <= 2


@pytest.mark.parametrize("batched", [False, True])
def test_evidence_for_a_target_costs_a_small_part_of_the_budget(batched):
    rng, places = np.random.default_rng(0), (1 if batched else 0)

    def f(x):
        return np.sum((x - 1) ** 2, axis=places) + 1 + 0.5 * rng.normal(size=x.shape[:places])

    result = quiet(f, np.zeros(4), 0.5, budget=6000, target=1.3, batched=batched)
    assert (result.status, sphere(result.mean - 1) + 1 < 1.3) == ("target", True)
    assert result.nfev < 3000


def test_a_function_without_noise_pays_next_to_nothing_for_the_question():
    asked, not_asked = (quiet(sphere, X0, 0.5, budget=20_000, target=1e-8, noisy=noisy) for noisy in (None, False))
    assert asked.noise == 0
    assert not_asked.nfev < asked.nfev < not_asked.nfev + 20
    np.testing.assert_array_equal(asked.x, not_asked.x)


def test_without_a_second_evaluation_the_noise_is_unknown():
    f = Noisy(0.5)
    result = quiet(f, np.zeros(4), 0.5, budget=11)
    assert f.calls == result.nfev == 11
    assert np.isnan([result.noise, result.mean_fun_se]).all()
    assert np.isfinite(result.mean_fun)
    assert "noise" not in repr(result)
    for f in (Noisy(0.0), sphere):  # with the minima 1 and 0
        said = quiet(f, np.full(4, 0.5), 0.5, budget=2000, noisy=True)
        assert said.noise == 0
        assert "noisy" not in said.message


def test_heavy_tails_are_named():
    def notes(draw):
        result = quiet(lambda x: sphere(x) + draw(), np.ones(4), 0.5, budget=1000)
        return any("its tails are heavy" in note for note in result.notes)

    assert notes(np.random.default_rng(0).standard_cauchy)
    assert not notes(np.random.default_rng(0).normal)


def test_a_best_value_by_luck_is_no_minimum():
    """One value in hundreds is far too low: the checks of the points miss it, the last check does not."""
    calls = []

    def f(x):
        calls.append(1)
        return sphere(x) - 10 * (len(calls) == 333)

    result = quiet(f, np.ones(3), 0.5, budget=20_000)
    assert result.fun < -9
    assert (result.status, result.success) == ("stalled", False)
    assert "f has another value when the best point is evaluated again" in result.message
    calls.clear()
    short = quiet(f, np.ones(3), 0.5, budget=1003)
    assert short.fun < -9
    assert (short.status, short.noise > 1) == ("budget", True)
    assert "f is noisy" in short.message


def test_errors_of_a_two_way_layout():
    """Whether calls, positions, both or none share noise, the mean square error is the expected one."""
    rng = np.random.default_rng(0)
    for calls, positions in ((5, 2), (10, 5)):
        for sizes in ((0, 0, 1), (1, 0, 0), (0, 1, 0), (1, 1, 1)):
            square, error = [], []
            for _ in range(300):
                shapes = (calls, 1), (1, positions), (calls, positions)
                values = 1e200 * sum(size * rng.normal(size=shape) for size, shape in zip(sizes, shapes, strict=True))
                square.append((values.mean() / 1e200) ** 2)
                error.append((error_of_mean(values, True)[0] / 1e200) ** 2)
            assert 0.75 < np.mean(error) / np.mean(square) < 2.2, (calls, positions, sizes)
    assert np.isnan(error_of_mean(np.ones((5, 1)), True)).all()
    assert np.isnan(error_of_mean(np.ones((1, 5)), False)).all()


def test_confidence_limits_of_a_two_way_layout():
    """The limit of 2 % is exceeded in about 2 % of samples, whichever part of the noise is shared."""
    rng, runs = np.random.default_rng(0), 1000
    for calls, positions in ((5, 2), (13, 3), (20, 5)):
        for sizes in ((0, 0, 1), (1, 0, 0), (0, 1, 0), (1, 1, 1)):
            wrong = 0
            for _ in range(runs):
                shapes = (calls, 1), (1, positions), (calls, positions)
                values = sum(size * rng.normal(size=shape) for size, shape in zip(sizes, shapes, strict=True))
                wrong += Average(values.mean(), *error_of_mean(values, True)).below(0.0, 0.02)
            assert wrong / runs < 0.035, (calls, positions, sizes, wrong)
    assert Average(1.0, 0.0, 4.0).below(1.0, 0.01)
    assert not Average(1.0, np.nan, np.nan).below(2.0, 0.01)


def test_noise_beside_a_large_constant_is_noise():
    rng = np.random.default_rng(0)
    result = quiet(lambda x: 1e12 + sphere(x) + 0.3 * rng.normal(), np.ones(4), 0.5, budget=600)
    assert result.status == "budget"
    assert "f is noisy" in result.message
    assert 0.15 < result.noise < 0.6
    still = quiet(lambda x: 1e12 + sphere(x), np.ones(4), 0.5, budget=3000)
    assert still.noise == 0
    assert "or a large constant hides its differences" in still.message
    assert "subtract a large constant" in " ".join(still.notes)


def test_what_counts_as_heavy():
    """One value has most of the squares: hardly ever of normal ones, in most samples of Cauchy's."""
    rng = np.random.default_rng(0)
    for n in (10, 20, 40, 400):
        normal, cauchy = (
            np.mean([dominated(np.abs(draw(n))) for _ in range(1000)])
            for draw in (lambda n: rng.normal(size=n), lambda n: rng.standard_cauchy(n))
        )
        assert normal < 0.005
        assert cauchy > 0.3


@pytest.mark.long
@pytest.mark.parametrize("shared", ["calls", "positions"])
def test_the_standard_error_at_the_mean_holds_for_noise_that_calls_or_positions_share(shared):
    """The noise of a call leaves the ranks alone: the search converges. That of positions is the same in each call."""
    off = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        places = rng.normal(size=100)

        def f(points, rng=rng, places=places):
            return (points**2).sum(1) + (3 * rng.normal() if shared == "calls" else places[: len(points)])

        result = quiet(f, np.full(3, 1.5), 0.5, "ingo_cma", budget=1000, batched=True, seed=seed)
        assert 0 < result.noise < 5
        off.append((result.mean_fun - sphere(result.mean)) / result.mean_fun_se)
    assert 0.2 < np.median(np.abs(off)) < 2  # few positions: Student's t


def test_noise_of_huge_values():
    """Scaled by a power of two, a search by ranks is the same to the last bit."""

    def result(scale):
        rng = np.random.default_rng(0)
        return quiet(lambda x: scale * (sphere(x) + rng.normal()), np.ones(4), 0.5, "ingo_cma", budget=800)

    one, other = result(1.0), result(2.0**997)
    np.testing.assert_array_equal(one.mean, other.mean)
    assert other.noise == pytest.approx(2.0**997 * one.noise, rel=1e-12, abs=0)
    assert other.mean_fun_se == pytest.approx(2.0**997 * one.mean_fun_se, rel=1e-12, abs=0)


@pytest.mark.parametrize("rate", [1e-3, -1e-3, 1e-6])
def test_values_that_drift_with_time_are_told(rate):
    """The rate is exact without noise: a value rises by it with each evaluation."""
    calls = iter(range(1_000_000))
    result = quiet(lambda x: sphere(x) + rate * next(calls), np.ones(3), 0.5, budget=300)
    (note,) = (note for note in result.notes if "drifts" in note)
    assert ("rises" if rate > 0 else "falls") + f" by about {abs(rate):.2g} " in note


@pytest.mark.parametrize("batched", [False, True])
def test_noise_alone_does_not_drift(batched):
    """20 searches: one in 500 would have such a note by chance."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        result = quiet(
            lambda x, rng=rng: (x**2).sum(axis=-1) + rng.normal(size=x.shape[:-1]),
            np.ones(3), 0.5, budget=300, batched=batched, seed=seed,
        )  # fmt: skip
        assert result.noise > 0
        assert not any("drifts" in note for note in result.notes)


def test_a_drift_is_seen_in_the_order_of_values():
    """Four ordered values of 24 orders are chance; ten of 3.6 million are not, with an outlier and a missing value."""
    assert drift(np.arange(4.0)) == 0
    assert drift(3 * np.arange(10.0)) == 3
    assert drift(np.array([0, 3, 6, np.nan, 9, 12, 15, 18, 21, 24, 27, 1e6])) == 3
    assert drift(np.ones(10)) == 0
    assert drift(np.full(10, np.nan)) == 0
