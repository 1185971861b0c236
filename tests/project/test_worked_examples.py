"""The worked examples of docs keep the contracts of what they add."""

import inspect
import sys

import jax
import numpy as np
import pytest
from worked_examples import blocks, factory

from lowvar.errors import UserError
from lowvar.registry import label
from lowvar.testing.estimators import EstimatorContract
from lowvar.testing.integrators import IntegratorContract
from lowvar.testing.searches import SearchContract


@pytest.fixture(scope="module", params=["variational"])
def worked(request):
    """The factory of a family's page."""
    return factory(request.param)


of_search = pytest.mark.parametrize("worked", ["search"], indirect=True)
of_integrals = pytest.mark.parametrize("worked", ["integral"], indirect=True)


@pytest.mark.long
def test_example_keeps_the_contract(worked):
    """The exact gradient over all batches and all of the noise, declared costs, and both backends on the same noise."""
    from lowvar.vi.batches import reshuffled

    contract = EstimatorContract()
    contract.test_mean_is_the_exact_gradient(worked)
    contract.test_declared_oracles_are_what_it_computes(worked, 1, reshuffled)
    contract.test_declared_full_passes_and_table(worked)
    contract.test_backends_agree_on_the_same_noise(worked)


@pytest.mark.parametrize(("coefficient", "name"), [pytest.param(0.0, "naive", marks=pytest.mark.long), (1.0, "cv")])
def test_example_has_the_ends_that_it_says(worked, coefficient, name):
    from lowvar.testing.enumerable import epoch_noise, flat, params, problem
    from lowvar.vi.batches import Noise, reshuffled
    from lowvar.vi.estimators import GRADIENT

    p, gradients = problem(), []
    noise = Noise(*(part[0] for part in epoch_noise(p, reshuffled(p.N, 3), 0)))
    assert inspect.getdoc(GRADIENT.get(worked)).count("References:") == 1
    for given, options in ((worked, {"coefficient": coefficient}), (name, {})):
        estimator = GRADIENT.get(given)(p, None, **options)
        assert estimator.name == label(given)
        gradient = jax.jit(lambda w, noise, one=estimator: one.estimate(one.init(w), w, noise)[0])
        gradients.append(flat(gradient(params(), noise)))
    np.testing.assert_allclose(*gradients, rtol=1e-12)


def promises(contract):
    """The tests of a contract that take a name alone."""
    return [name for name, test in vars(contract).items()
            if name.startswith("test_") and list(inspect.signature(test).parameters) == ["self", "name"]]  # fmt: skip


@of_search
@pytest.mark.parametrize("promise", promises(SearchContract))
def test_example_of_a_search_keeps_the_contract(worked, promise):
    getattr(SearchContract(), promise)(worked)


@of_search
def test_example_of_a_search_sees_ranks_alone(worked):
    from lowvar.testing.searches import arrays, first_generation, values

    before, noise, points, tell = first_generation(worked)
    found = values(worked)(points)
    for one, other in zip(arrays(tell(before, noise, points, found)),
                          arrays(tell(before, noise, points, jax.numpy.log(found))), strict=True):  # fmt: skip
        np.testing.assert_array_equal(one, other)
    after = tell(before, noise, points, 0 * found)
    np.testing.assert_array_equal(after[0].mean, before.mean)


@of_integrals
@pytest.mark.parametrize("promise", promises(IntegratorContract))
def test_example_of_an_integrator_keeps_the_contract(worked, promise):
    getattr(IntegratorContract(), promise)(worked)


@of_integrals
def test_example_of_an_integrator_has_the_ends_that_it_says(worked):
    """A huge penalty leaves the mean of the values, a tiny one the regression of order 1."""
    from lowvar.integrals.base import make
    from lowvar.testing.integrators import draws, seeds

    samples = draws(m=30)
    for penalty, name, options in ((1e12, "monte_carlo", {}), (1e-12, "zero_variance", {"order": 1})):
        found, end = (
            make(one, given).integrate(samples, seeds(samples)).value
            for one, given in ((worked, {"penalties": [penalty]}), (name, options))
        )
        np.testing.assert_allclose(found, end, rtol=1e-9)
    with pytest.raises(UserError, match="penalties"):
        make(worked, {"penalties": [0.0]})


@pytest.fixture
def page_of_guides(tmp_path, monkeypatch):
    """The blocks of code of the page on guides, whose file can be imported."""
    source, *rest = blocks("adding-a-guide.md", "python")
    (tmp_path / "pairs.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pairs", raising=False)
    yield rest
    sys.modules.pop("pairs", None)


def test_example_of_a_guide_fits_the_exact_posterior(page_of_guides):
    exec(page_of_guides[0], found := {})
    from lowvar.vi.guides.gaussian import GUIDES

    assert GUIDES.get("pairs:pairs") is found["pairs"]
    correlation = found["covariance"] / np.outer(found["sd"], found["sd"]) - np.eye(8)
    assert correlation.min() == pytest.approx(-0.89, abs=0.01)  # which no mean-field guide has


@pytest.mark.parametrize("test", ["test_densities_and_derivatives", "test_the_mean_is_the_exact_gradient"])
def test_example_of_a_guide_passes_its_own_tests(page_of_guides, test):
    exec(page_of_guides[1], found := {})
    found[test]()
