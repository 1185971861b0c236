"""How a fit ends, and what it shows: callbacks, Ctrl-C, plateaus, the summary, the plot."""

import signal
from unittest.mock import MagicMock

import elbo_traces
import jax.numpy as jnp
import numpy as np
import pytest
from short_fits import assert_equal, fitted

from lowvar.errors import UserError
from lowvar.vi.run.fit_run import Plateau

pytestmark = pytest.mark.filterwarnings("ignore:regression. the fit has not converged")


@pytest.fixture(scope="module")
def short():
    return fitted()


def test_the_callback_sees_every_evaluation():
    seen = []
    fit = fitted(callback=seen.append)
    assert [one.iteration for one in seen] == fit.elbo["iteration"].tolist()
    assert [one.elbo for one in seen][:-1] == fit.elbo["elbo"].tolist()[:-1]  # the last row is of the average
    assert [one.elbo_se for one in seen] == fit.elbo["elbo_se"].tolist()
    np.testing.assert_array_equal(seen[-1].params["w_auto_scale"], fit.params["w_auto_scale"])
    assert not np.array_equal(seen[0].params["w_auto_scale"], fit.params["w_auto_scale"])


def test_ctrl_c(short):
    """The first returns the fit so far, with a note; two in a row abort."""

    def pressed(times):
        def callback(at):
            for _ in range(times if at.iteration >= 20 else 0):
                signal.raise_signal(signal.SIGINT)

        return callback

    with pytest.warns(UserWarning, match=r"regression: Ctrl-C ended the fit after \d+ of 62 steps"):
        fit = fitted(callback=pressed(1))
    assert fit.run.ended == "interrupted"
    assert 20 <= fit.run.num_steps < 62
    with pytest.raises(KeyboardInterrupt):
        fitted(callback=pressed(2))
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert_equal(fit.resume(62 - fit.run.num_steps, progress=False), short)


def test_a_plateau_ends_a_fit():
    fit = fitted(num_steps=6000, step_size=0.05, batch_size=200, stop=True)
    assert fit.run.ended == "converged"
    assert 1000 <= fit.run.num_steps < 6000
    whole = fitted(num_steps=6000, step_size=0.05, batch_size=200)
    assert whole.elbo["elbo"].iloc[-1] - fit.elbo["elbo"].iloc[-1] < 2 * fit.elbo["elbo_se"].iloc[-1]
    pd_rows = whole.elbo[whole.elbo["iteration"] <= fit.run.num_steps].reset_index(drop=True)
    assert pd_rows.iloc[:-1].equals(fit.elbo.iloc[:-1])  # until then, the same run; the last row is of the average


def test_false_stops_are_rare():
    """Of 240 synthetic traces that still rise or not, by kinds: those of concave means are safe."""
    counts = elbo_traces.count(240, seed=1)
    concave = sum(counts[kind] for kind in elbo_traces.KINDS if kind not in elbo_traces.RISES_AGAIN)
    traces, stops, soon, late = concave
    assert traces == 160
    assert stops > 20  # the rule does stop
    assert soon == 0
    assert late <= 3
    assert sum(counts.values())[2] <= 8

    def eager(steps, values, errors):
        return steps[-1] >= 1000 and values[-1] - values[-2] < errors[-1]

    hasty = elbo_traces.count(240, seed=1, rule=eager)
    assert sum(hasty.values())[2] > 40  # a rule on the last difference alone would fail


def test_the_plateau_of_a_line():
    steps = np.array([1000, 1200, 1450, 1750, 2100, 2500, 3000, 3600, 4000.0])
    errors = np.full(9, 0.5)
    for slope, stops in ((0.0, True), (0.4, True), (0.6, False), (-3.0, True)):
        assert Plateau()(steps, slope * np.log2(steps), errors) is stops
    assert Plateau(rise=1.0)(steps, 0.6 * np.log2(steps), errors)
    assert not Plateau()(steps, np.where(steps == 2500, np.nan, 0.0), errors)
    assert not Plateau()(steps / 5, 0 * steps, errors)  # too early


@pytest.mark.parametrize(
    ("name", "value"),
    [*(("callback", one) for one in (7, lambda: None, lambda iteration, elbo: None, lambda at: 1)),
     *(("stop", one) for one in (-1.0, "elbo", np.nan, max))],
)  # fmt: skip
def test_wrong_callbacks_and_stops(name, value):
    with pytest.raises(UserError, match=name):
        fitted(**{name: value})


def test_what_a_callback_may_return(short):
    def exhausted(_):
        raise StopIteration

    with pytest.warns(UserWarning, match="the callback ended the fit before its first step"):
        ended = fitted(callback=exhausted, khat_samples=None)
    assert (ended.run.num_steps, ended.run.ended, ended.khat) == (0, "callback", None)
    assert short.resume(1, callback=lambda _: np.False_, progress=False).run.ended == "budget"
    assert short.resume(9, callback=lambda _: jnp.array(True), progress=False).run.ended == "callback"
    with pytest.raises(ZeroDivisionError):
        fitted(callback=lambda _: 1 / 0)


def test_the_summary_is_that_of_arviz_which_takes_the_draws(short):
    arviz = pytest.importorskip("arviz")
    assert short.to_arviz(100).posterior["w"].shape == (1, 100, 2)
    if int(arviz.__version__.split(".")[0]) >= 1:
        pytest.skip("ArviZ 1 names other intervals")
    mine = short.summary()
    theirs = arviz.summary(short.to_arviz(4000), kind="stats", round_to="none")
    assert mine.index.tolist() == theirs.index.tolist() == ["bias", "scale", "w[0]", "w[1]"]
    assert mine.columns.tolist() == [
        "mean", "sd", "hdi_3%", "hdi_97%", "mcse_mean", "mcse_sd", "opt_mean", "opt_sd", "lr_sd", "lr_sd_se",
    ]  # fmt: skip
    np.testing.assert_allclose(mine[theirs.columns], theirs, rtol=1e-9)
    by_chains = arviz.summary(short.to_arviz(4000), kind="diagnostics", round_to="none")
    np.testing.assert_allclose(mine["mcse_mean"], by_chains["mcse_mean"], rtol=0.2)
    np.testing.assert_allclose(mine["mcse_sd"], by_chains["mcse_sd"], rtol=0.3)
    tails = short.summary("w", kind="eti", hdi_prob=0.5)
    np.testing.assert_allclose(tails["eti_25%"], np.quantile(short.sample(4000)["w"], 0.25, axis=0))
    for wrong in ({"var_names": "v"}, {"kind": "hpd"}, {"hdi_prob": 94}, {"hdi_prob": "94"}, {"round_to": 3}):
        with pytest.raises(UserError, match="summary"):
            short.summary(**wrong)


def test_the_summary_shows_the_digits_that_its_errors_justify(short):
    text, numbers = short.summary(round_to="auto"), short.summary()
    places = -np.floor(np.log10(numbers["mcse_mean"]))
    for name in ("mean", "hdi_3%"):
        assert (text[name].str.partition(".")[2].str.len() == places).all()
    np.testing.assert_allclose(text["sd"].astype(float), numbers["sd"], atol=numbers["mcse_sd"].max())


def test_a_misspelt_folder_is_named_and_not_made(short, tmp_path):
    for write in (short.save, short.plot):
        with pytest.raises(UserError, match="resluts"):
            write(tmp_path / "resluts" / "fit.npz")
    assert list(tmp_path.iterdir()) == []


def test_the_plot(short, tmp_path):
    """The trace, and an enlargement of its end."""
    figure = short.plot(tmp_path / "elbo")
    assert {one.name for one in tmp_path.iterdir()} == {"elbo.svg", "elbo.png", "elbo.csv"}
    first, last = figure.axes[0], figure.axes[-1]
    assert (first.get_xlabel(), first.get_ylabel()) == ("step", "ELBO (nats)")
    drawn = first.lines[0].get_xydata()
    np.testing.assert_array_equal(drawn, short.elbo[["iteration", "elbo"]].to_numpy(float))
    assert last.lines[0].get_xydata()[-1].tolist() == drawn[-1].tolist()
    band = last.collections[0].get_paths()[0].vertices[:, 1]
    assert band.max() == pytest.approx((short.elbo["elbo"] + short.elbo["elbo_se"])[-5:].max(), abs=50)


@pytest.mark.parametrize(
    ("notebook", "progress", "disable"), [(True, None, False), (True, False, True), (False, None, None)]
)
def test_progress(short, monkeypatch, notebook, progress, disable):
    """In a notebook, and without widgets, a bar is shown although stderr is no terminal; elsewhere tqdm decides."""
    shown = []
    monkeypatch.setattr("tqdm.auto.tqdm", lambda *args, **options: shown.append(options["disable"]) or MagicMock())
    monkeypatch.setattr("lowvar.vi.fit.in_notebook", lambda: notebook)
    short.resume(1, progress=progress)
    assert shown == [disable]
