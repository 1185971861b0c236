"""``lowvar.TorchModel``: the same estimates as from NumPyro's twin, tensors in and out, and refusals of what is no model."""

import threading
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
from lowvar.vi.batches import Noise
from lowvar.vi.settings import batch_of
from lowvar.vi.torch import functions

N, RNG = 40, np.random.default_rng(0)
X = RNG.normal(size=(N, 2))
Y = (RNG.uniform(size=N) < 1 / (1 + np.exp(-X @ np.array([1.0, -0.5])))).astype(float)
x, y = torch.from_numpy(X), torch.from_numpy(Y)
Bernoulli, Normal = torch.distributions.Bernoulli, torch.distributions.Normal
TWINS = {"x": jnp.asarray(X), "y": jnp.asarray(Y)}
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


def test_a_fit_starts_where_another_ended_or_at_given_values():
    first = lowvar.fit(model(), estimator="naive", **SHORT)
    again = model().problem(init=first.params)
    np.testing.assert_allclose(again.start["mu"], first.guide_params["mu"])
    np.testing.assert_allclose(np.exp(again.start["log_sigma"]), first.params["z_auto_scale"])
    for ones in (torch.ones(2), np.ones(2, ">f8")):
        assert model().problem(init={"z": ones}).start["mu"].tolist() == [1, 1]
    with pytest.raises(lowvar.UserError, match="unknown site 'w'"):
        model().problem(init={"w": torch.ones(2)})


def test_precisions():
    single = model(lambda z, index: Normal(x.float()[index] @ z, 1.0).log_prob(y.float()[index]))
    assert single.problem().dtype == np.float32
    assert model().problem().dtype == np.float64  # x @ z accepts float64 alone
    wide = model(lambda z, index: Normal((x[index] * z).sum(-1), 1.0).log_prob(y[index]))
    assert wide.problem().dtype == np.float64  # elementwise operations promote
    fitted = lowvar.fit(single, estimator="joint", **SHORT)
    assert fitted.params["z_auto_loc"].dtype is torch.float32


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


@pytest.mark.parametrize("settings", [
    {"num_steps": 23},
    pytest.param({"estimator": "cv", "batch_size": N, "num_steps": 19, "khat_samples": 400}, marks=pytest.mark.long),
    pytest.param({"guide": "full_rank", "estimator": "cv", "batch_size": N, "num_steps": 19}, marks=pytest.mark.long),
], ids=["adaptive", "full", "full_rank"])  # fmt: skip
def test_a_fit_is_that_of_its_numpyro_twin(settings):
    """The same start, noise and steps; 23 steps end within an epoch, 19 full batches (and below) in a group of them."""
    settings = SHORT | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mine, other = lowvar.fit(model(name="twin"), **settings), lowvar.fit(twin, TWINS, **settings)
    assert set(mine.params) == set(other.params)
    for name, value in other.params.items():
        assert mine.params[name].dtype is torch.float64
        np.testing.assert_allclose(mine.params[name], value, rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(mine.elbo["elbo"], other.elbo["elbo"], rtol=1e-8)
    assert (mine.khat, mine.notes) == (other.khat and pytest.approx(other.khat, rel=1e-5), other.notes)
    assert isinstance(mine.sample(3)["z"], torch.Tensor)
    np.testing.assert_allclose(mine.sample(3)["z"], other.sample(3)["z"], rtol=1e-7)
    again = model().problem(init=mine.params, guide=settings.get("guide", "mean_field"))
    for block, value in again.start.items():
        np.testing.assert_allclose(value, mine.guide_params[block], atol=1e-12)


FULL = {"auto_loc": np.array([0.5, -0.3]), "auto_scale_tril": np.array([[0.2, 0.0], [0.1, 0.1]])}


@pytest.mark.parametrize(
    ("params", "estimator"), [(FULL, "naive"), pytest.param(None, "joint_svrg", marks=pytest.mark.long)]
)
def test_decompose_agrees_with_the_twin(params, estimator):
    settings = {"estimators": [estimator], "batch_size": 10, "replicates": 4, "columns": 2, "progress": False}
    settings |= {} if params else {"num_steps": 8}
    mine = lowvar.decompose(model(name="twin"), None, params, **settings)
    other = lowvar.decompose(twin, TWINS, params, **settings)
    np.testing.assert_allclose(mine.table["variance"], other.table["variance"], rtol=1e-6)
    assert ("lower" in set(mine.table["block"])) == (params is FULL)


def in_place(z, index):
    out = z.new_zeros(len(index))
    out += x[index] @ z
    out.mul_(2).div_(2)
    return Bernoulli(logits=out).log_prob(y[index])


@pytest.mark.parametrize("form", ["in place", pytest.param("torch.compile", marks=pytest.mark.long)])
def test_models_in_other_forms_are_the_same_model(form):
    compiled = [torch.compile(one, backend="eager") for one in (likelihood, prior)]
    problem, other = model().problem(), (model(in_place) if form == "in place" else model(*compiled)).problem()
    params = {"mu": torch.tensor([0.3, -0.1], dtype=torch.float64), "log_sigma": torch.full((2,), -1.0).double()}
    noise = Noise(torch.tensor([3, 1, 4, 1]), torch.full((4,), 0.25).double(), torch.tensor(4.0).double(),
                  torch.ones(1, 2).double(), torch.tensor(0))  # fmt: skip
    found = other.backend.compile(other.objective_gradient)(params, noise)
    for block, value in problem.objective_gradient(params, noise).items():
        np.testing.assert_allclose(found[block], value, rtol=1e-10)


COUNT = [0]


def stateful(z, index):
    COUNT[0] += 1
    return likelihood(z, index) * COUNT[0]


REFUSED = {
    "a sum": (lambda z, i: likelihood(z, i).sum(), r"returned shape \(\) for 7 rows"),
    "y of shape (N, 1)": (lambda z, i: Normal(x[i] @ z, 1.0).log_prob(y[:, None][i]), r"returned shape \(7, 7\)"),
    "all rows": (lambda z, i: likelihood(z, torch.arange(N)), r"shape \(40,\) for 7 rows.*`index`"),
    "NumPy": (lambda z, i: likelihood(z, i).detach().numpy(), "ndarray"),
    "partly detached": (lambda z, i: Normal(x[i] @ z, torch.exp(z.detach()[0])).log_prob(y[i]), "hidden from autograd"),
    "a branch on z": (lambda z, i: likelihood(z, i) if z.sum() > -9 else likelihood(z, i) * 2, "torch.func traces"),
    "random": (lambda z, i: likelihood(z, i) + torch.randn(len(i)), "random numbers"),
    "state": (stateful, "changes state"),
    "the rows' number": (lambda z, i: likelihood(z, i) * len(i), "depends on the other rows"),
    "an infinite row": (lambda z, i: torch.where(i == 5, -torch.inf, likelihood(z, i)), "row 5 is -inf at the start"),
    "an error": (lambda z, i: likelihood(z, i) @ torch.ones(3, 3), "cannot be run on z of shape"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_model_is_refused(case):
    function, message = REFUSED[case]
    with pytest.raises(lowvar.UserError, match=f"(?s){message}") as error:
        model(function).problem()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"log_prior": Normal(0.0, 1.0).log_prob}, "log_prior"),
        ({"N": 0}, "N 0"),
        ({"N": 41}, "N = 41"),
        ({"dim": 3}, "z of shape"),
        ({"subsample_size": 41}, "subsample_size 41"),
        ({"dtype": torch.int32}, "dtype torch.int32"),
    ],
)
def test_wrong_arguments(given, name):
    with pytest.raises(lowvar.UserError, match=name):
        model(**given).problem()


LINEAR = torch.nn.Linear(2, 1).double()


@pytest.mark.parametrize(
    ("module", "scale", "name"),
    [
        (LINEAR, -1.0, "'weight'"),
        (LINEAR, {"weight": 1.0}, "'bias'"),
        (LINEAR, {"wieght": 1.0, "bias": 1.0}, "'wieght'"),
        (torch.nn.Sequential(LINEAR, torch.nn.Dropout(0.5)), 1.0, "random numbers"),
        (torch.nn.Sequential(torch.nn.BatchNorm1d(2).double(), LINEAR), 1.0, "log_likelihood"),
    ],
)
def test_modules_that_are_refused(module, scale, name):
    with pytest.raises(lowvar.UserError, match=name):
        lowvar.TorchModel.from_module(
            module, x, lambda out, i: Bernoulli(logits=out[:, 0]).log_prob(y[i]), scale
        ).problem()


def test_what_is_no_torch_model_is_told_where_to_go():
    pyro = types.ModuleType("pyro")
    for given, data, name in (
        (model(), {"x": X}, "leave data out"),
        (torch.nn.Linear(2, 1), {"x": X}, "from_module"),
        (lambda x: pyro.sample("z", x), {"x": X}, "from_pyro"),
    ):
        with pytest.raises(lowvar.UserError, match=name):
            lowvar.fit(given, data)
    with pytest.raises(lowvar.UserError, match="optax"):
        lowvar.fit(model(), optimizer=optax.adamw(1e-3))


def test_threads_that_run_models_leave_the_validation_of_distributions_as_it_was(monkeypatch):
    monkeypatch.setattr(torch.distributions.Distribution, "_validate_args", True)  # torch.compile switches it off
    first_runs, second_runs, first_ended = (threading.Event() for _ in range(3))

    def first(z, index):
        first_runs.set()
        second_runs.wait(timeout=0.5)
        return z.sum() + 0 * index

    def second(z, index):
        second_runs.set()
        first_ended.wait(timeout=0.5)
        return z.sum() + 0 * index

    def run(likelihood, ended):
        one = lowvar.TorchModel(likelihood, lambda z: z.sum(), 2, 1)
        functions.functions_of(one)[0](torch.zeros(1), torch.arange(2))
        ended.set()

    threads = [threading.Thread(target=run, args=pair) for pair in ((first, first_ended), (second, threading.Event()))]
    threads[0].start()
    first_runs.wait(timeout=60)
    threads[1].start()
    for thread in threads:
        thread.join()
    assert torch.distributions.Distribution._validate_args
