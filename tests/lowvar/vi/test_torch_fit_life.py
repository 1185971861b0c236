"""Fits of a ``TorchModel`` on disk and in memory: the same ways, and the same bytes, as fits of NumPyro models."""

import copy
import pickle
import textwrap

import numpy as np
import pytest
import torch
from short_fits import assert_equal

import lowvar
from lowvar.errors import UserError

N, RNG = 40, np.random.default_rng(0)
x = torch.from_numpy(RNG.normal(size=(N, 2)))
y = (torch.from_numpy(RNG.uniform(size=N)) < torch.sigmoid(x @ torch.tensor([1.0, -0.5], dtype=x.dtype))).to(x)
Bernoulli, Normal = torch.distributions.Bernoulli, torch.distributions.Normal
QUICK = {"num_steps": 25, "batch_size": 10, "progress": False, "khat_samples": 0, "elbo_samples": 20}

pytestmark = pytest.mark.filterwarnings("ignore:.*the fit has not converged")


def prior(z):
    return Normal(0.0, 1.0).log_prob(z).sum()


def model(y=y, N=N):
    """Its functions are local, as those of a notebook."""
    return lowvar.TorchModel(
        lambda z, index: Bernoulli(logits=x[index] @ z).log_prob(y[index]), prior, N, 2, name="logistic"
    )


def module():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)).double()
    return lowvar.TorchModel.from_module(net, x, lambda out, index: Bernoulli(logits=out[:, 0]).log_prob(y[index]))


def of_pyro():
    pyro = pytest.importorskip("pyro")

    def constrained(x, y):
        scale = pyro.sample("scale", pyro.distributions.HalfNormal(torch.ones((), dtype=x.dtype)))
        with pyro.plate("data", N) as i:
            pyro.sample("y", pyro.distributions.Normal(x[i, 0], scale), obs=y[i])

    return lowvar.TorchModel.from_pyro(constrained, {"x": x, "y": y})


WAYS = {
    "default": (model, {}),
    "low_rank": (model, {"guide": {"guide": "low_rank", "rank": 1}, "estimator": "joint_svrg"}),
    "table": (model, {"estimator": "joint"}),
    "module": (module, {"estimator": "naive"}),
    "pyro": (of_pyro, {"estimator": "naive"}),
}


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way == "default" else pytest.mark.long) for way in WAYS])
def test_a_fit_is_kept_and_continues(way, tmp_path):
    """From a file, from a pickle and from memory: one longer fit, from inside an epoch (25 steps of four each)."""
    make, options = WAYS[way]
    options = QUICK | options
    fit, long = lowvar.fit(make(), **options), lowvar.fit(make(), **options | {"num_steps": 43})
    path = tmp_path / "fit.npz"
    fit.save(path)
    loaded, unpickled = lowvar.load(path, make()), pickle.loads(pickle.dumps(fit))
    for one in (loaded, unpickled, copy.deepcopy(fit)):
        assert_equal(one, fit)
        assert (repr(one), str(one)) == (repr(fit), str(fit))
    for one in (fit, loaded, unpickled):
        assert_equal(one.resume(18, progress=False), long)
    for site, draws in fit.sample(3).items():
        assert torch.equal(loaded.sample(3)[site], draws)
        assert torch.equal(unpickled.sample(3)[site], draws)
    again = tmp_path / "again.npz"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()


def test_a_pickle_of_a_scripts_functions(tmp_path):
    """As a process reads it that has not run the script."""
    path, main = tmp_path / "fit.pkl", {"__name__": "__main__"}  # its functions are those of a script or notebook
    script = """
        import torch, lowvar
        x = torch.linspace(-1.0, 1.0, 20, dtype=torch.float64)
        def likelihood(z, index):
            return -0.5 * (x[index] - z[0]) ** 2
        model = lowvar.TorchModel(likelihood, lambda z: -0.5 * (z**2).sum(), 20, 1, dtype=torch.float64)
        fit = lowvar.fit(model, num_steps=5, khat_samples=0, progress=False, estimator="naive")
    """
    exec(textwrap.dedent(script), main)
    path.write_bytes(pickle.dumps(main["fit"]))
    resumed = main["fit"].resume(3, progress=False).params["z_auto_loc"].item()
    del main["likelihood"], main["x"]
    assert pickle.loads(path.read_bytes()).resume(3, progress=False).params["z_auto_loc"].item() == resumed


@pytest.mark.parametrize(
    ("other", "data", "message"),
    [
        (model(torch.where(torch.arange(N) == 17, 1 - y, y)), None, r"1 of the model's 40 rows .*\(row 17: "),
        (model(N=30), None, "another number of rows"),
        (lowvar.TorchModel(model().log_likelihood, lambda z: 2 * prior(z), N, 2), None, "the model's densities differ"),
        (module(), None, "unknown site 'z_auto_loc'"),
        (lambda x, y: None, {"x": x, "y": y}, "TorchModel"),
        (model(), {"x": x}, "leave data out"),
    ],
)
def test_a_file_fits_its_model_only(other, data, message, saved):
    with pytest.raises(UserError, match=message):
        lowvar.load(saved, other, data)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    path = tmp_path_factory.mktemp("fit") / "fit.npz"
    lowvar.fit(model(), estimator="naive", **QUICK).save(path)
    return path


def test_a_callback_answers_with_a_boolean_of_torch():
    ended = lowvar.fit(model(), callback=lambda at: torch.tensor(at.iteration > 0), **QUICK)
    assert (ended.run.ended, ended.run.num_steps > 0) == ("callback", True)
