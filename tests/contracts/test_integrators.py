"""Every registered integrator keeps its contract."""

import pytest

from lowvar.errors import UserError
from lowvar.estimators import INTEGRAL
from lowvar.estimators.integral.options import make
from lowvar.testing.integrators import FORMS, IntegratorContract

# variants of what the others do: their linear algebra or their loop of training is the same
VARIANTS = ("sparse_control_functional", "alternating", "convex", "additive", "paper_cf", "paper_cv", "paper_vv_fixed")
PLAIN = [("auto", form) for form in ("one task at its points", "three tasks at the same points", "values of size 1e90")]


def unless(long):
    """All integrators, those that are ``long`` in ``make test-long`` alone."""
    return [pytest.param(name, marks=pytest.mark.long if name in long else ()) for name in INTEGRAL.own]


class TestIntegrators(IntegratorContract):
    @pytest.fixture(params=INTEGRAL.own)
    def name(self, request):
        return request.param

    @pytest.mark.parametrize("name", unless(long=("auto",)))  # test_auto.py has its errors and intervals
    def test_mean_and_spread_over_repetitions(self, name):
        super().test_mean_and_spread_over_repetitions(name)

    @pytest.mark.parametrize(
        ("name", "form"),
        [
            pytest.param(name, form, marks=pytest.mark.long if name in VARIANTS or (name, form) in PLAIN else ())
            for name in INTEGRAL.own
            for form in FORMS
        ],
    )
    def test_takes_samples_of_every_form(self, name, form):
        super().test_takes_samples_of_every_form(name, form)


def test_unknown_options_are_refused():
    with pytest.raises(UserError, match="vector_valued: unknown option 'nuget': did you mean 'nugget'"):
        make("vector_valued", {"nuget": 1.0})
    with pytest.raises(UserError, match="unknown integrator 'control_function': did you mean 'control_functional'"):
        make("control_function", {})
