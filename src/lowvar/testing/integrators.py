"""The contract of integrators: measurements of their declared properties."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from lowvar.integrals.base import FLAGS, Samples, make
from lowvar.registry import label

# settings that shorten lowvar's slow integrators, and change none of the properties
SHORT = {
    "neural": {"steps": 20},
    "paper_cv": {"epochs": 4, "tuning_epochs": 1, "batch": 5, "rate": 1e-3},
    "paper_cf": {"tuning_epochs": 2},
    "paper_vv": {"epochs": 4, "tuning_epochs": 1, "rate": 1e-3},
    "paper_vv_fixed": {"epochs": 4, "tuning_epochs": 1, "rate": 1e-3, "B": [1.0, 0.5]},
}


def integrator_of(name):
    return make(name, SHORT.get(name, {}))


def draws(repetitions=3, m=20, tasks=2, seed=0, values=None):
    """Points of N(0, 1), separate for each task; related integrands of mean 1 + t / 2 unless ``values`` is given."""
    rng = np.random.default_rng(seed)
    points = tuple(rng.normal(size=(repetitions, m, 1)) for _ in range(tasks))
    values = values or (lambda t, x: 1 + t / 2 + np.sin(x) * (1 + t) + 0.5 * (x**2 - 1))
    return Samples(
        points, tuple(-x for x in points), tuple(values(t, x[..., 0]) for t, x in enumerate(points)), chain=False
    )


def seeds(samples):
    return 7 + np.arange(samples.repetitions)


@cache
def of_draws(name):
    """The integrator's results on ``draws()``, with which several tests compare."""
    samples = draws()
    return integrator_of(name).integrate(samples, seeds(samples))


# Batched with other repetitions, linear algebra rounds differently on some processors; a search for hyper-parameters
# stops where the likelihood is flat, which amplifies that. Inputs changed in their last bits moved estimates by at most
# 4e-4 of their standard errors (``convex``), a change of other repetitions or tasks by far more.
ROUNDING = 1e-2  # in standard errors


FORMS = {
    "one task at its points": lambda: shared(1),
    "three tasks at the same points": lambda: shared(3),
    "tasks of different sizes": lambda: unequal(),
    "a chain": lambda: replace(shared(2), chain=True),
    "values of size 1e-90": lambda: scaled(1e-90),
    "values of size 1e90": lambda: scaled(1e90),
    "an integrand with a jump": lambda: draws(tasks=1, m=30, values=lambda t, x: (x > 0) * 1.0),
    "tasks of different scales": lambda: draws(values=lambda t, x: 1e8**t * np.sin(x) + 1),
}


def shared(tasks):
    x = np.random.default_rng(5).normal(size=(3, 20, 1))
    values = tuple(
        np.sin((1 + t) * x[..., 0]) + 0.1 * np.random.default_rng(t).normal(size=(3, 20)) for t in range(tasks)
    )
    return Samples((x,) * tasks, (-x,) * tasks, values, shared=True)


def unequal():
    rng = np.random.default_rng(6)
    points = tuple(rng.normal(size=(3, m, 1)) for m in (20, 30))
    return Samples(points, tuple(-x for x in points), tuple(np.sin(x[..., 0]) + t for t, x in enumerate(points)))


def scaled(scale):
    samples = draws()
    return replace(samples, values=tuple(scale * v for v in samples.values))


class IntegratorContract:
    """The contract of integrators: measurements of their declared properties."""

    method: Any = None

    @pytest.fixture
    def name(self):
        return self.method

    def test_shapes_and_flags(self, name):
        assert integrator_of(name).name == label(name)
        result = of_draws(name)
        assert result.value.shape == result.standard_error.shape == (3, 2)
        assert result.condition.shape == (3,)
        assert np.isfinite(result.value).all()
        assert set(result.flags) <= set(FLAGS)
        assert all(flag.shape == (3,) and flag.dtype == bool for flag in result.flags.values())
        assert all(len(array) == 3 for array in result.info.values())
        if result.fitted is not None:
            x = np.linspace(-1, 1, 5)[None, :, None].repeat(3, axis=0)
            assert result.fitted(1, x, -x).shape == (3, 5)

    def test_repeats_itself_and_draws_only_if_it_says_so(self, name):
        samples, integrator = draws(), integrator_of(name)
        first = of_draws(name)
        assert np.array_equal(first.value, integrator_of(name).integrate(samples, seeds(samples)).value)
        other = integrator.integrate(samples, 100 + seeds(samples))
        assert np.array_equal(first.value, other.value) != integrator.properties.random

    def test_repetitions_do_not_know_of_each_other(self, name):
        samples, integrator = draws(), integrator_of(name)
        together = of_draws(name)
        for r in range(3):
            alone = integrator.integrate(samples.repetition(slice(r, r + 1)), seeds(samples)[r : r + 1]).value
            assert (np.abs(alone[0] - together.value[r]) < ROUNDING * together.standard_error[r]).all()
        apart = np.abs(together.value[0] - together.value[1:])
        # the check has power; the stated error of auto is far above the spread of its values
        assert (apart > 10 * ROUNDING * together.standard_error[1:]).any() or name == "auto"

    def test_uses_scores_only_if_it_says_so(self, name):
        samples, integrator = draws(), integrator_of(name)
        other = Samples(samples.points, tuple(np.zeros_like(s) for s in samples.scores), samples.values)
        same = np.array_equal(of_draws(name).value, integrator.integrate(other, seeds(other)).value)
        assert same != integrator.properties.scores

    def test_transfers_between_tasks_only_if_it_says_so(self, name):
        if name == "auto":
            pytest.skip("it transfers if it chooses a method that does")
        samples, integrator = draws(), integrator_of(name)
        changed = Samples(samples.points, samples.scores, (np.cos(3 * samples.values[0]), samples.values[1]))
        before = of_draws(name)
        after = integrator.integrate(changed, seeds(samples)).value[:, 1]
        moved = np.abs(after - before.value[:, 1])
        if integrator.properties.transfers:
            assert moved.max() > 1e-12  # the paper's methods learn little in a few epochs
        else:
            assert (moved < ROUNDING * before.standard_error[:, 1]).all()

    def test_constants_are_integrated_exactly(self, name):
        integrator = integrator_of(name)
        if integrator.properties.exact_on == "nothing":
            pytest.skip("declares exactness on no functions")
        samples = draws(values=lambda t, x: np.full_like(x, 3.0 - t))
        value = integrator.integrate(samples, seeds(samples)).value
        np.testing.assert_allclose(value, [[3.0, 2.0]] * 3, atol=1e-6)

    def test_what_control_variates_span_is_integrated_exactly(self, name):
        integrator = integrator_of(name)
        if integrator.properties.exact_on != "span":
            pytest.skip("does not declare it")
        samples = draws(tasks=1, values=lambda t, x: 2 + 3 * x - 0.5 * (x**2 - 1))
        result = integrator.integrate(samples, seeds(samples)).value[:, 0]
        plain = samples.values[0].mean(axis=1)
        assert np.abs(result - 2).max() < 1e-4 * np.abs(plain - 2).max()

    def test_the_fewest_points_suffice(self, name):
        fewest = integrator_of(name).properties.fewest
        samples = draws(m=fewest)
        assert np.isfinite(integrator_of(name).integrate(samples, seeds(samples)).value).all()

    def test_mean_and_spread_over_repetitions(self, name):
        samples = draws(repetitions=60, m=24, seed=3)
        error = integrator_of(name).integrate(samples, seeds(samples)).value - np.array([1.0, 1.5])
        plain = np.stack([v.mean(axis=1) for v in samples.values], axis=1) - np.array([1.0, 1.5])
        spread = error.std(axis=0, ddof=1) / np.sqrt(60)
        # fitted to the same points, control variates have a bias, which vanishes faster than the spread of a mean
        allowed = 0 if name == "monte_carlo" else 0.1 * np.sqrt((plain**2).mean(axis=0))
        assert (np.abs(error.mean(axis=0)) < 5 * spread + allowed).all(), (error.mean(axis=0), spread)
        assert spread.max() < 0.06  # enough power to detect a tenth of the integrands' spread
        if name in ("control_functional", "vector_valued", "zero_variance"):  # these must reduce the spread
            assert (error.std(axis=0) < 0.7 * plain.std(axis=0)).all(), (error.std(axis=0), plain.std(axis=0))

    @pytest.mark.parametrize("form", FORMS)
    def test_takes_samples_of_every_form(self, name, form):
        samples = FORMS[form]()
        result = integrator_of(name).integrate(samples, seeds(samples))
        assert result.value.shape == (3, samples.tasks)
        assert np.isfinite(result.value).all()
        assert (result.standard_error > 0).all() or name == "neural" or not np.isfinite(result.standard_error).all()

    def test_learnt_arrays_have_one_form(self, name):
        """For any data and number of points: jobs stack them over repetitions and sizes."""
        rng, forms = np.random.default_rng(8), set()
        for m, frequency in ((12, 1), (12, 5), (20, 1)):
            x = rng.normal(size=(1, m, 1))
            values = np.sin(frequency * x[..., 0])
            samples = Samples((x, x + 0.1), (-x, -x - 0.1), (values, values**2))
            info = integrator_of(name).integrate(samples, np.arange(1)).info
            forms.add(tuple(sorted((key, np.shape(array)[1:]) for key, array in info.items())))
        assert len(forms) == 1, forms
