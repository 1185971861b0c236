"""Chains that are not independent, or do not move, among those given to ``lowvar.integrate``."""

import numpy as np
import pytest

import lowvar
from lowvar.errors import UserError
from lowvar.integrals.inputs import chain_notes
from lowvar.integrals.monte_carlo import on_grid, split_r_hat

DEPENDENT = "do not count as independent: give each chain its own seed"


def autocorrelated(rng, chains=4, draws=200, dim=2, keeps=0.5, start=0.0):
    x = np.full((chains, draws, dim), start)
    x[:, 0] += rng.normal(size=(chains, dim))
    for t in range(1, draws):
        x[:, t] = keeps * x[:, t - 1] + np.sqrt(1 - keeps**2) * rng.normal(size=(chains, dim))
    return x


def metropolis(rng, chains=4, draws=200, dim=2, step=1.7):
    x = np.zeros((chains, draws, dim))
    for t in range(1, draws):
        proposed = x[:, t - 1] + step * rng.normal(size=(chains, dim))
        kept = np.log(rng.uniform(size=chains)) < (x[:, t - 1] ** 2 - proposed**2).sum(axis=1) / 2
        x[:, t] = np.where(kept[:, None], proposed, x[:, t - 1])
    return x


DEPENDS = {
    "nearly equal": lambda rng, one, own: one + 1e-8 * rng.normal(size=one.shape),
    "with noise": lambda rng, one, own: one + 0.1 * rng.normal(size=one.shape),
    "correlated": lambda rng, one, own: 0.8 * one + 0.6 * own,
    "delayed by 1": lambda rng, one, own: np.concatenate([own[:1], one[:-1]]),
    "delayed by 70": lambda rng, one, own: np.concatenate([own[:70], one[:-70]]),
    "a half at random": lambda rng, one, own: np.where(rng.random((200, 1)) < 0.5, one, own),
    "a fifth": lambda rng, one, own: np.concatenate([one[:40], own[40:]]),
}


@pytest.mark.parametrize("way", DEPENDS)
@pytest.mark.parametrize("draw", [autocorrelated, metropolis])
def test_dependent_chains_are_refused(draw, way):
    for seed in range(5):
        rng = np.random.default_rng(seed)
        x = draw(rng)
        if draw is autocorrelated or way not in ("a half at random", "correlated"):  # which break up its repetitions
            x[3] = DEPENDS[way](rng, x[1], x[3])
            with pytest.raises(UserError, match=rf"chains 1 and 3 .*{DEPENDENT}"):
                chain_notes(x)


@pytest.mark.parametrize(
    "draw",
    [
        autocorrelated,
        lambda rng: metropolis(rng, step=30.0, draws=60),  # often stands still, at the common start
        lambda rng: metropolis(rng, dim=1, draws=1000),
        lambda rng: autocorrelated(rng, keeps=0.99, start=30.0, dim=1, draws=400),  # drifts, all chains alike
        lambda rng: autocorrelated(rng, keeps=-0.9, dim=1),
        lambda rng: rng.standard_cauchy((4, 60, 1)),
        lambda rng: np.round(autocorrelated(rng, dim=1), 2),
        lambda rng: autocorrelated(rng, chains=30, draws=40),
    ],
)
def test_independent_chains_are_not(draw):
    for seed in range(10):
        chain_notes(draw(np.random.default_rng(seed)))


def test_copies_are_refused_in_low_resolution_too():
    x = np.round(autocorrelated(np.random.default_rng(0), dim=1), 1)
    x[[2, 3]] = x[0]
    with pytest.raises(UserError, match="chains 0, 2 and 3 are equal"):
        chain_notes(x)


def test_all_chains_that_stand_still_are_named():
    x = autocorrelated(np.random.default_rng(0))
    x[[0, 2, 3]] = x[[0, 2, 3], :1]
    assert [note.split(" do not move")[0] for note in chain_notes(x)] == ["chains 0, 2 and 3"]


def test_a_list_of_chains_has_a_task_each():
    """Chains of each task are concatenated and checked as those of one array are."""
    sets = [autocorrelated(np.random.default_rng(seed), draws=60) for seed in range(2)]
    values = [x[..., 0] ** 2 for x in sets]
    given = {"samples": sets, "scores": [-x for x in sets], "values": values}
    found = lowvar.integrate(**given, method="zero_variance", chain=True)
    for t in range(2):
        alone = lowvar.integrate(sets[t], -sets[t], values[t], "zero_variance", chain=True)
        np.testing.assert_allclose(found.value[t], alone.value[0], rtol=1e-10)
    flat = given | {"values": [v.ravel() for v in values]}
    np.testing.assert_array_equal(lowvar.integrate(**flat, method="zero_variance", chain=True).value, found.value)
    for change, argument in (
        ({"values": [values[0], values[1][:, :50]]}, r"values\[1\]"),
        ({"scores": [-sets[0], -sets[1][:, :50]]}, r"scores\[1\]"),
        ({"samples": [sets[0], sets[1][[0, 1, 2, 2]]]}, r"samples\[1]: chains 2 and 3"),
    ):
        with pytest.raises(UserError, match=argument):
            lowvar.integrate(**given | change, chain=True)


def test_repeated_samples_that_are_said_to_be_independent_are_noted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    drawn = x[rng.integers(0, 60, 60)]
    with pytest.warns(UserWarning, match="samples repeat others, which makes standard errors .* set chain=True"):
        lowvar.integrate(drawn, -drawn, drawn[:, 0] ** 2, "monte_carlo")
    assert not lowvar.integrate(x, -x, x[:, 0] ** 2, "monte_carlo").notes
    assert not any("repeat" in n for n in lowvar.integrate(drawn, -drawn, drawn[:, 0], "monte_carlo", chain=True).notes)


@pytest.mark.filterwarnings("ignore:many samples are equal", "ignore:scores")
def test_ties_of_discrete_or_rounded_samples_are_no_copies():
    """Monte Carlo's ordinary error, and no control variate; copies of rounded samples are still copies."""
    rng = np.random.default_rng(0)
    for x in (rng.poisson(3, 300) + 0.0, rng.normal(size=300).round(1), rng.binomial(1, 0.5, (300, 5)) + 0.0):
        f = x.reshape(300, -1)[:, 0]
        found = lowvar.integrate(x, f.mean() - x, f)
        assert found.method == "monte_carlo"
        np.testing.assert_allclose(found.standard_error, f.std(ddof=1) / np.sqrt(300), rtol=0.03)
        assert any("lie on a grid" in n for n in found.notes), found.notes
        assert not any("repeat others" in n or "very few" in n for n in found.notes), found.notes
    x = rng.normal(size=300)
    for source in (x, x.astype(np.float16) + 0.0, rng.normal(size=(300, 2)).round(2)):
        assert not on_grid(source[rng.integers(0, 300, 300)].reshape(300, -1))


@pytest.mark.parametrize("change", [None, "apart", "wide"])
def test_chains_that_have_not_mixed_are_told(change):
    x = np.random.default_rng(0).normal(size=(4, 200, 2))
    x[1, :, 1] += 2 * (change == "apart")
    x[1] *= 5 if change == "wide" else 1
    assert any("have not mixed" in note for note in chain_notes(x)) == (change is not None)


def test_r_hat_is_that_of_arviz():
    arviz = pytest.importorskip("arviz")
    x = np.random.default_rng(0).normal(size=(3, 60, 2)).cumsum(axis=1)
    np.testing.assert_allclose(split_r_hat(x), [float(arviz.rhat(x[..., k])) for k in range(2)], rtol=1e-10)


def test_chains_on_an_axis_are_not_said_to_lie_between_each_other():
    """Three chains at -5, one at 5: rows 250 apart depend on each other most, and the axis says where chains end."""
    x = np.random.default_rng(0).normal(np.repeat([-5.0, -5.0, -5.0, 5.0], 250))
    weight = 1 / (1 + np.exp(-10 * x))  # of the mode at 5, in a mixture of equal parts
    scores = -(x - 5 * (2 * weight - 1))
    given = [one.reshape(4, 250, 1) for one in (x, scores)]
    with pytest.warns(UserWarning, match="have not mixed"):
        by_axis = lowvar.integrate(*given, given[0][..., 0], chain=True, exact_scores=True)
    assert not any("between each other" in note for note in by_axis.notes)
    with pytest.warns(UserWarning, match="between each other"):
        rows = lowvar.integrate(x, scores, x, chain=True, exact_scores=True)
    assert any("between each other" in note for note in rows.notes)
