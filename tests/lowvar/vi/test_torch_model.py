"""``lowvar.TorchModel``: the same estimates as from NumPyro's twin, tensors in and out, and refusals of what is no model."""

import sys
import types
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as jdist
import optax
import pytest
import torch

import lowvar
from lowvar.core import backend as backends
from lowvar.vi.batches import Noise
from lowvar.vi.settings import batch_of

N, RNG = 40, np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = (RNG.uniform(size=N) < 1 / (1 + np.exp(-X @ np.array([1.0, -0.5])))).astype(float)
x, y = torch.from_numpy(X), torch.from_numpy(Y)
Bernoulli, Normal = torch.distributions.Bernoulli, torch.distributions.Normal
SHORT = {"num_steps": 25, "batch_size": 10, "progress": False, "khat_samples": 0}


def likelihood(z, index):
    return Bernoulli(logits=x[index] @ z).log_prob(y[index])


def prior(z):
    return Normal(0.0, 1.0).log_prob(z).sum()


def twin(x, y, batch_size=None):
    z = numpyro.sample("z", jdist.Normal(0, 1).expand([2]).to_event(1))
    with numpyro.plate("data", len(x), subsample_size=batch_size) as index:
        numpyro.sample("y", jdist.Bernoulli(logits=x[index] @ z), obs=y[index])


def model(log_likelihood=likelihood, log_prior=prior, N=N, dim=2, **options):
    return lowvar.TorchModel(log_likelihood, log_prior, N, dim, **options)


@pytest.mark.parametrize("settings", [
    {"num_steps": 23}, pytest.param({"estimator": "joint", "num_steps": 23}, marks=pytest.mark.long),
    pytest.param({"estimator": "cv", "batch_size": N, "num_steps": 19}, marks=pytest.mark.long),
], ids=["adaptive", "joint", "full"])  # fmt: skip
def test_a_fit_is_that_of_its_numpyro_twin(settings):
    """The same start, noise and steps; 23 steps end within an epoch, 19 full batches (and below) in a group of them."""
    settings = SHORT | settings
    mine = lowvar.fit(model(name="twin"), **settings)
    other = lowvar.fit(twin, {"x": jnp.asarray(X), "y": jnp.asarray(Y)}, **settings)
    assert set(mine.params) == set(other.params) == {"z_auto_loc", "z_auto_scale"}
    for name, value in other.params.items():
        assert isinstance(mine.params[name], torch.Tensor)
        assert mine.params[name].dtype is torch.float64
        np.testing.assert_allclose(mine.params[name], value, rtol=1e-8)
    np.testing.assert_allclose(mine.elbo["elbo"], other.elbo["elbo"], rtol=1e-8)
    assert isinstance(mine.sample(3)["z"], torch.Tensor)
    np.testing.assert_allclose(mine.sample(3)["z"], other.sample(3)["z"], rtol=1e-7)


@pytest.mark.long
@pytest.mark.parametrize("guide", ["full_rank", {"guide": "low_rank", "rank": 1}])
def test_a_guide_with_correlations_is_that_of_its_numpyro_twin(guide):
    """The same parameters, and the same normal as a distribution of PyTorch; a start from them."""
    settings = SHORT | {"estimator": "cv", "guide": guide, "batch_size": N, "num_steps": 19}
    mine = lowvar.fit(model(name="twin"), **settings)
    other = lowvar.fit(twin, {"x": jnp.asarray(X), "y": jnp.asarray(Y)}, **settings)
    assert set(mine.params) == set(other.params)
    for name, value in other.params.items():
        np.testing.assert_allclose(mine.params[name], value, rtol=1e-8, atol=1e-12)
    factor = mine.problem.guide.matrix({block: torch.as_tensor(value) for block, value in mine.guide_params.items()})
    np.testing.assert_allclose(mine.guide.covariance_matrix, factor @ factor.T, rtol=1e-8)
    again = model().problem(init=mine.params, guide=guide)
    for block, value in again.start.items():
        np.testing.assert_allclose(value, mine.guide_params[block], atol=1e-12)


@pytest.mark.long
@pytest.mark.filterwarnings("error")
def test_double_precision_without_that_of_jax():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 2)))
    normal = torch.distributions.Normal
    with jax.enable_x64(False):
        plain = lowvar.TorchModel(
            lambda z, i: normal(x[i] @ z, 1.0).log_prob(x[i].sum(1)), lambda z: normal(0.0, 1.0).log_prob(z).sum(),
            N=50, dim=2, dtype=torch.float64,
        )  # fmt: skip
        fit = lowvar.fit(
            plain, guide="full_rank", estimator="naive", batch_size=50, num_steps=300, khat_samples=0, progress=False,
            step_size=0.02,
        )  # fmt: skip
    assert fit.params["auto_scale_tril"].dtype is torch.float64


@pytest.mark.long
def test_khat_and_notes_are_those_of_the_twin():
    settings = SHORT | {"estimator": "naive", "khat_samples": 400, "num_steps": 16}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine = lowvar.fit(model(name="twin"), **settings)
        other = lowvar.fit(twin, {"x": jnp.asarray(X), "y": jnp.asarray(Y)}, **settings)
    assert mine.khat == pytest.approx(other.khat, rel=1e-5)
    assert mine.notes == other.notes


def test_a_fit_starts_where_another_ended_or_at_given_values():
    first = lowvar.fit(model(), estimator="naive", **SHORT)
    again = model().problem(init=first.params)
    np.testing.assert_allclose(again.start["mu"], first.guide_params["mu"])
    np.testing.assert_allclose(np.exp(again.start["log_sigma"]), first.params["z_auto_scale"])
    for ones in (torch.ones(2), np.ones(2, ">f8")):
        assert model().problem(init={"z": ones}).start["mu"].tolist() == [1, 1]
    with pytest.raises(lowvar.UserError, match="unknown site 'w'"):
        model().problem(init={"w": torch.ones(2)})


FULL = {"auto_loc": np.array([0.5, -0.3]), "auto_scale_tril": np.array([[0.2, 0.0], [0.1, 0.1]])}


@pytest.mark.parametrize(
    ("params", "estimator"),
    [
        pytest.param(FULL, "naive", id="full_rank"),
        pytest.param(FULL, "joint_svrg", id="full_rank, memory", marks=pytest.mark.long),
        pytest.param(None, "joint_svrg", id="own fit", marks=pytest.mark.long),
    ],
)
def test_decompose_agrees_with_the_twin(params, estimator):
    settings = {"estimators": [estimator], "batch_size": 10, "replicates": 4, "columns": 2, "progress": False}
    settings |= {} if params else {"num_steps": 8}
    mine = lowvar.decompose(model(name="twin"), None, params, **settings)
    other = lowvar.decompose(twin, {"x": jnp.asarray(X), "y": jnp.asarray(Y)}, params, **settings)
    np.testing.assert_allclose(mine.table["variance"], other.table["variance"], rtol=1e-6)
    assert set(mine.time) == {estimator}
    assert ("lower" in set(mine.table["block"])) == (params is FULL)


@pytest.mark.long
def test_decompose_takes_the_memory_of_a_fit():
    fitted = lowvar.fit(model(name="twin"), estimator="joint_svrg", **SHORT | {"num_steps": 8})
    along = lowvar.decompose(model(name="twin"), None, fitted, estimators=["naive"], replicates=4, columns=2)
    assert along.memories == {"joint_svrg": "the fit's own"}


def in_place(z, index):
    out = z.new_zeros(len(index))
    out += x[index] @ z
    out.mul_(2).div_(2)
    return Bernoulli(logits=out).log_prob(y[index])


def calling(one):
    return model(lambda z, index: one(z, index))


FORMS = {
    "in place": lambda: model(in_place),
    "loop": lambda: model(lambda z, index: likelihood(z, index) + sum(0 * z[j] for j in range(2))),
    "torch.compile": lambda: model(*(torch.compile(one, backend="eager") for one in (likelihood, prior))),
    "calls what is compiled": lambda: calling(torch.compile(likelihood, backend="eager")),
}


@pytest.mark.parametrize("form", [pytest.param(f, marks=pytest.mark.long if "compile" in f else ()) for f in FORMS])
def test_models_in_other_forms_are_the_same_model(form):
    problem, other = model().problem(), FORMS[form]().problem()
    params = {"mu": torch.tensor([0.3, -0.1], dtype=torch.float64), "log_sigma": torch.full((2,), -1.0).double()}
    found = other.backend.compile(other.objective_gradient)(params, _noise(problem))
    for block, value in problem.objective_gradient(params, _noise(problem)).items():
        np.testing.assert_allclose(found[block], value, rtol=1e-10)


def _noise(problem):
    index = torch.tensor([3, 1, 4, 1])
    return Noise(index, torch.full((4,), 0.25).double(), torch.tensor(4.0).double(), torch.ones(1, 2).double(),
                 torch.tensor(0))  # fmt: skip


def test_precisions():
    single = model(lambda z, index: Normal(x.float()[index] @ z, 1.0).log_prob(y.float()[index]))
    assert single.problem().dtype == np.float32
    assert model().problem().dtype == np.float64  # x @ z accepts float64 alone
    wide = model(lambda z, index: Normal((x[index] * z).sum(-1), 1.0).log_prob(y[index]))
    assert wide.problem().dtype == np.float64  # elementwise operations promote
    fitted = lowvar.fit(single, estimator="joint", **SHORT)
    assert fitted.params["z_auto_loc"].dtype is torch.float32
    with pytest.raises(lowvar.UserError, match=r"dtype torch.int32: it must be torch.float32 or torch.float64"):
        model(dtype=torch.int32).problem()


COUNT = [0]


def stateful(z, index):
    COUNT[0] += 1
    return likelihood(z, index) * COUNT[0]


REFUSED = {
    "a sum": (lambda z, i: likelihood(z, i).sum(), r"log_likelihood returned shape \(\) for 7 rows"),
    "a column": (lambda z, i: likelihood(z, i)[:, None], r"shape \(7, 1\) for 7 rows; .*shape \(7,\)"),
    "y of shape (N, 1)": (lambda z, i: Normal(x[i] @ z, 1.0).log_prob(y[:, None][i]), r"log_likelihood returned shape \(7, 7\)"),
    "all rows": (lambda z, i: likelihood(z, torch.arange(N)), r"shape \(40,\) for 7 rows.*`index`"),
    "squeeze": (lambda z, i: Normal((x[i] @ z[:, None]).squeeze(), 1.0).log_prob(y[i]).squeeze(), r"shape \(\) for 1 rows"),
    "NumPy": (lambda z, i: likelihood(z, i).detach().numpy(), "must return a tensor, not ndarray"),
    "detached": (lambda z, i: likelihood(z.detach(), i), "hidden from autograd"),
    "partly detached": (lambda z, i: Normal(x[i] @ z, torch.exp(z.detach()[0])).log_prob(y[i]), "hidden from autograd"),
    "a branch on z": (lambda z, i: likelihood(z, i) if z.sum() > -9 else likelihood(z, i) * 2, "torch.func traces"),
    "random": (lambda z, i: likelihood(z, i) + torch.randn(len(i)), "draws random numbers"),
    "state": (stateful, "changes state"),
    "a mean over the batch": (lambda z, i: Normal((x[i] - x[i].mean(0)) @ z, 1.0).log_prob(y[i]), "depends on the other"),
    "the rows' number": (lambda z, i: likelihood(z, i) * len(i), "depends on the other rows"),
    "in place": (lambda z, i: torch.zeros(len(i)).double().add_(x[i] @ z),
                 "torch.func traces"),
    "an infinite row": (lambda z, i: torch.where(i == 5, -torch.inf, likelihood(z, i)), "row 5 is -inf at the start"),
    "an error": (lambda z, i: likelihood(z, i) @ torch.ones(3, 3), "cannot be run on z of shape"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_model_is_refused(case):
    function, message = REFUSED[case]
    with pytest.raises(lowvar.UserError, match=f"(?s){message}") as error:
        model(function).problem()
    assert "\n" not in str(error.value)


def test_other_mistakes_are_refused():
    with pytest.raises(lowvar.UserError, match="log_prior returned shape \\(2,\\)"):
        model(log_prior=Normal(0.0, 1.0).log_prob).problem()
    wrong = {"N 0: it must be a whole": {"N": 0}, "N = 41": {"N": 41}, "run on z of shape": {"dim": 3},
             "subsample_size 41: there are 40 rows": {"subsample_size": 41}}  # fmt: skip
    for message, given in wrong.items():
        with pytest.raises(lowvar.UserError, match=message):
            model(**given).problem()
    with pytest.raises(lowvar.UserError, match="holds its data; leave data out"):
        lowvar.fit(model(), {"x": X})
    with pytest.raises(lowvar.UserError, match="from_module"):
        lowvar.fit(torch.nn.Linear(2, 1), {"x": X})
    for given in ({"optimizer": optax.adamw(1e-3)}, {"step_size": optax.constant_schedule(0.1)}):
        with pytest.raises(lowvar.UserError, match="an optax transformation"):
            lowvar.fit(model(), **given)
    normalised = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 1))
    with pytest.raises(lowvar.UserError, match="log_likelihood"):
        lowvar.TorchModel.from_module(normalised, x.float(), lambda out, i: -(out[:, 0] ** 2)).problem()


def test_a_pyro_model_is_told_where_to_go():
    pyro = types.ModuleType("pyro")

    def torchy(x):
        return pyro.sample("z", x)

    with pytest.raises(
        lowvar.UserError, match=r"torchy is a Pyro model: give lowvar.TorchModel.from_pyro\(torchy, data"
    ):
        lowvar.fit(torchy, {"x": X})


@pytest.mark.parametrize("whole", [True, False])
def test_another_version_of_torch_is_told(whole, monkeypatch):
    """Some names that the backend imports are not public: a version without them is named in one sentence."""
    if whole:
        monkeypatch.setitem(sys.modules, "torch._guards", None)
    else:
        monkeypatch.delattr("torch._guards.TracingContext")
    monkeypatch.delitem(sys.modules, "lowvar.core.torch", raising=False)
    with pytest.raises(lowvar.UserError, match="'torch': the installed version of torch lacks something that lowvar"):
        backends.get.__wrapped__("torch")  # what is cached stays


def hierarchical(sample, plate, dist, exp):
    """A model in the terms of either library; the support of ``b`` depends on ``a``."""

    def run(x, y, batch_size=None):
        a = sample("a", dist.HalfNormal(1.0))
        b = sample("b", dist.Uniform(-1.0, 1.0 + a))
        w = sample("w", dist.Normal(0.0, a).expand([2]).to_event(1))
        with plate("data", x.shape[0], subsample_size=batch_size) as i:
            sample("y", dist.Poisson(exp(x[i] @ w + 0.1 * b)), obs=y[i])

    return run


@pytest.mark.parametrize("batch_size", [pytest.param(None, marks=pytest.mark.long), 7])
def test_a_pyro_model_is_its_numpyro_twin(batch_size, rng):
    """The same densities, whatever the plate's own subsample size, for a support that depends on another site."""
    pyro = pytest.importorskip("pyro")
    counts = np.arange(float(N)) % 4
    mine = lowvar.TorchModel.from_pyro(
        hierarchical(pyro.sample, pyro.plate, pyro.distributions, torch.exp),
        {"x": x, "y": torch.from_numpy(counts), "batch_size": batch_size}, name="twin",
    ).problem()  # fmt: skip
    other = lowvar.problem(
        hierarchical(numpyro.sample, numpyro.plate, jdist, jnp.exp), {"x": jnp.asarray(X), "y": jnp.asarray(counts)}
    )
    assert mine.sites == dict(other.sites)
    assert (mine.N, mine.dtype, batch_of(mine)) == (N, np.float64, batch_size or N)
    z = rng.normal(size=4)
    for index in (np.array([3, 1, 3]), rng.permutation(N)):
        found = mine.log_likelihood(torch.from_numpy(z), torch.from_numpy(index))
        np.testing.assert_allclose(found, other.log_likelihood(jnp.asarray(z), jnp.asarray(index)), rtol=1e-10)
    assert float(mine.log_prior(torch.from_numpy(z))) == pytest.approx(
        float(other.log_prior(jnp.asarray(z))), rel=1e-10
    )
    draws, expected = mine.draws(z[None]), other.draws(z[None])
    for site in ("a", "b", "w"):
        np.testing.assert_allclose(draws[site], expected[site], rtol=1e-10)


def test_pyro_models_that_are_refused():
    pyro = pytest.importorskip("pyro")
    dist, data = pyro.distributions, {"x": x, "y": y}

    def unindexed(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("data", N):
            pyro.sample("y", dist.Normal(x[:, 0] * w, 1.0), obs=y)

    def local(x, y):
        with pyro.plate("data", N) as i:
            w = pyro.sample("w", dist.Normal(0.0, 1.0))
            pyro.sample("y", dist.Normal(w, 1.0), obs=y[i])

    def plateless(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(x[:, 0] * w, 1.0).to_event(1), obs=y)

    def discrete(x, y):
        k = pyro.sample("k", dist.Bernoulli(0.5))
        with pyro.plate("data", N) as i:
            pyro.sample("y", dist.Normal(k, 1.0), obs=y[i])

    def with_param(x, y):
        b, w = pyro.param("b", torch.zeros(())), pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("data", N) as i:
            pyro.sample("y", dist.Normal(w + b, 1.0), obs=y[i])

    def looping(x, y):
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        for i in pyro.plate("data", N):
            pyro.sample(f"y{i}", dist.Normal(w, 1.0), obs=y[i])

    for model, message in {
        unindexed: "index the data by it", local: "inside the data plate 'data'", plateless: "one data plate.*has none",
        discrete: "'k' is discrete", with_param: "'b' is a pyro.param", looping: "loops over a plate",
    }.items():  # fmt: skip
        with pytest.raises(lowvar.UserError, match=message):
            lowvar.TorchModel.from_pyro(model, data)


def test_a_module_with_priors():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)).double()
    net[0].bias.requires_grad_(False)
    scale = {"0.weight": 2.0, "2.weight": torch.ones(1, 3), "2.bias": 0.5}

    def of_outputs(out, index):
        return Bernoulli(logits=out[:, 0]).log_prob(y[index])

    module = lowvar.TorchModel.from_module(net, x, of_outputs, scale)
    problem = module.problem()
    assert problem.sites == {"0.weight": slice(0, 6), "2.weight": slice(6, 9), "2.bias": slice(9, 10)}
    z, rows = torch.from_numpy(problem.start["mu"]), torch.tensor([5, 2])
    with torch.no_grad():
        np.testing.assert_allclose(problem.log_likelihood(z, rows), of_outputs(net(x[rows]), rows))
        parts = {name: value for name, value in net.named_parameters() if value.requires_grad}
        expected = sum(Normal(0.0, scale[name]).log_prob(value).sum() for name, value in parts.items())
    assert float(problem.log_prior(z)) == pytest.approx(float(expected))
    before = [value.clone() for value in net.parameters()]
    fitted = lowvar.fit(module, estimator="naive", **SHORT)
    assert fitted.params["2.weight_auto_loc"].shape == (1, 3)
    assert fitted.sample(4)["0.weight"].shape == (4, 3, 2)
    assert all(torch.equal(old, new) for old, new in zip(before, net.parameters(), strict=True))


def test_modules_that_are_refused():
    net = torch.nn.Linear(2, 1).double()

    def of_outputs(out, index):
        return Bernoulli(logits=out[:, 0]).log_prob(y[index])

    def refused(match, module=net, inputs=x, scale=1.0):
        with pytest.raises(lowvar.UserError, match=match):
            lowvar.TorchModel.from_module(module, inputs, of_outputs, scale).problem()

    refused("Linear: prior_scale of 'weight': -1.0: it must be positive", scale=-1.0)
    refused("prior_scale has no entry for the parameter 'bias'", scale={"weight": 1.0})
    refused("unknown parameter 'wieght': did you mean 'weight'", scale={"wieght": 1.0, "bias": 1.0})
    refused("inputs must be a tensor", inputs=X)
    refused("draws random numbers.*module.eval", torch.nn.Sequential(net, torch.nn.Dropout(0.5)))
    refused("log_likelihood", torch.nn.Sequential(torch.nn.BatchNorm1d(2).double(), net))
