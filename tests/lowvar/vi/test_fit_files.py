"""A fit as a file and as a pickle: saved, loaded, resumed, refused."""

import copy
import json
import pickle
import threading

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
import pytest
from short_fits import DATA, N, assert_equal, fitted, regression

import lowvar
from lowvar.core import artifact
from lowvar.errors import UserError
from lowvar.registry import Entry
from lowvar.vi.guides.gaussian import GUIDES

pytestmark = pytest.mark.filterwarnings("ignore:regression. the fit has not converged")


@pytest.fixture(scope="module")
def short():
    return fitted()


def test_a_saved_fit_continues(short, tmp_path):
    path = tmp_path / "fit.npz"
    short.save(path)
    assert [one.name for one in tmp_path.iterdir()] == ["fit.npz"]
    loaded = lowvar.load(path, regression, DATA)
    assert_equal(loaded, short)
    assert (repr(loaded), str(loaded), loaded.khat) == (repr(short), str(short), short.khat)
    np.testing.assert_array_equal(loaded.sample(5)["w"], short.sample(5)["w"])
    assert_equal(loaded.resume(81, khat_samples=0, progress=False), fitted(num_steps=143))
    again = tmp_path / "again.npz"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_a_file_has_the_options_of_an_installed_guide(tmp_path, monkeypatch):
    """A low-rank guide of another package, whose option has a name of its own."""
    (tmp_path / "wide_guide.py").write_text(
        "from lowvar.vi.guides.gaussian import LowRank\n"
        "class Wide(LowRank):\n    name = 'wide'\n"
        "def wide(dim, backend, noiseless, sites, columns: int = 1):\n"
        "    return Wide(dim, backend, noiseless, columns)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    entry = Entry("wide", "wide_guide:wide", distribution="their-package")
    monkeypatch.setitem(GUIDES._installed, "wide", [entry])
    fit = fitted(guide={"guide": "wide", "columns": 2})
    assert fit.problem.blocks["factor"] == 2 * fit.problem.dim
    fit.save(tmp_path / "fit.npz")
    assert_equal(lowvar.load(tmp_path / "fit.npz", regression, DATA), fit)
    assert_equal(pickle.loads(pickle.dumps(fit)), fit)


def test_a_fit_of_another_version_is_refused(short, tmp_path):
    path = tmp_path / "fit.npz"
    short.save(path)
    arrays, mark = artifact.read_arrays(path)
    state = max(name for name in arrays if name.startswith("kept/"))
    for changed in ({name: one for name, one in arrays.items() if name != state}, arrays | {state: np.zeros(91)}):
        artifact.write_arrays(path, changed, mark)
        with pytest.raises(UserError, match="another state than when the fit was saved"):
            lowvar.load(path, regression, DATA)
    np.savez(path, __lowvar__=np.array(json.dumps(mark)), **arrays)  # as before files had a digest
    with pytest.raises(UserError, match=r"fit\.npz: without the digest"):
        lowvar.load(path, regression, DATA)
    artifact.write_arrays(path, arrays, mark | {"fit": mark["fit"] | {"form": 1}, "versions": {"lowvar": "0.0.9"}})
    with pytest.raises(UserError, match=r"in format 1, by lowvar 0\.0\.9"):
        lowvar.load(path, regression, DATA)


def test_a_file_fits_its_model_and_its_data_only(short, tmp_path):
    path = tmp_path / "fit.npz"
    short.save(path)
    x, y = DATA["x"], DATA["y"]

    def sharper(x, y, batch_size=None):
        with numpyro.handlers.scale(scale=1.1):
            regression(x, y, batch_size)

    def more_sites(x, y, batch_size=None):
        numpyro.sample("z", dist.Normal(0, 1))
        regression(x, y, batch_size)

    wrong = [
        (regression, {"x": x[:150], "y": y[:150]}, r"'x' had shape \(200, 2\) .* \(150, 2\)"),
        (regression, {"x": x.astype(np.float32), "y": y}, "'x' had type float64 .* float32"),
        (regression, {"x": x, "y": y + 1}, "'y' has other values than in the fit"),
        (regression, {"x": x}, "the fit's data were x, y, not x"),
        (sharper, DATA, "the model's densities differ from those of the saved fit"),
        (more_sites, DATA, "another model"),
    ]
    for model, data, message in wrong:
        with pytest.raises(UserError, match=message):
            lowvar.load(path, model, data)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"fit.npz: .*damaged"):
        lowvar.load(path, regression, DATA)
    with pytest.raises(UserError, match="no such file"):
        lowvar.load(tmp_path / "none.npz", regression, DATA)
    artifact.write_arrays(path, {"a": np.ones(2)}, artifact.stamp("0", {}))
    with pytest.raises(UserError, match="no fit"):
        lowvar.load(path, regression, DATA)


@pytest.mark.long
def test_a_users_own_objects_are_given_again(tmp_path):
    """The file holds no code: neither an optimizer of optax nor an estimator's function."""
    adam = optax.adam(optax.exponential_decay(0.05, 50, 0.5))
    mine = {"optimizer": optax.chain(optax.add_noise(0.1, 0.5, jax.random.key(3)), adam)}
    fit, path = fitted(estimator="naive", **mine), tmp_path / "fit.npz"
    assert fit.elbo["elbo"].iloc[-1] > fit.elbo["elbo"].iloc[0]
    fit.save(path)
    alone = lowvar.load(path, regression, DATA)
    np.testing.assert_array_equal(alone.params["w_auto_loc"], fit.params["w_auto_loc"])
    with pytest.raises(UserError, match="needs the optimizer"):
        alone.resume(10)
    loaded = lowvar.load(path, regression, DATA, **mine)
    assert_equal(loaded.resume(38, khat_samples=0, progress=False), fitted(estimator="naive", num_steps=100, **mine))


def test_init_names_the_sites_that_a_fit_of_another_model_lacks(short):
    def wider(x, y, batch_size=None):
        regression(x, y + numpyro.sample("shift", dist.Normal(0, 1)), batch_size)

    with pytest.warns(UserWarning, match="no values of 'shift'"):
        fitted(wider, init=short, estimator="naive", num_steps=1)


@pytest.mark.long
def test_pickles(short):
    """With a function of a module, and with a local one; copies too."""
    assert_equal(pickle.loads(pickle.dumps(short)), short)
    assert_equal(copy.deepcopy(short), short)
    width, lock = 1.5, threading.Lock()

    def local(x, y, batch_size=None):
        w = numpyro.sample("w", dist.Normal(0, width).expand([2]).to_event(1))
        with numpyro.plate("rows", x.shape[0], subsample_size=batch_size) as index:
            numpyro.sample("y", dist.Normal(x[index] @ w, 1.0), obs=y[index])

    fit = fitted(local, estimator="naive", optimizer=optax.adamw(0.01))
    back = pickle.loads(pickle.dumps(fit))
    assert_equal(back.resume(20, khat_samples=0, progress=False), fit.resume(20, khat_samples=0, progress=False))

    def locked(x, y, batch_size=None):
        with lock:
            regression(x, y, batch_size)

    with pytest.raises(UserError, match=r"locked: the fit cannot be pickled.*lock"):
        pickle.dumps(fitted(locked, estimator="naive", num_steps=1))


def test_a_model_that_reads_its_data_from_elsewhere_is_known_by_all_rows(tmp_path):
    """One row of 200 differs, which is none of the few that are compared where data are arguments."""
    world = dict(DATA)

    def model(batch_size=None):
        regression(**{name: jnp.asarray(one) for name, one in world.items()}, batch_size=batch_size)

    fit, path = fitted(model, {}, estimator="naive", num_steps=1), tmp_path / "fit.npz"
    fit.save(path)
    assert_equal(lowvar.load(path, model, {}), fit)
    world["y"] = np.where(np.arange(N) == 17, DATA["y"] + 0.5, DATA["y"])
    with pytest.raises(UserError, match=r"1 of the model's 200 rows have other log-likelihoods .*\(row 17: "):
        lowvar.load(path, model, {})
