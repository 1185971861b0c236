"""Every registered integrator keeps its contract."""

import pytest

from lowvar.errors import UserError
from lowvar.integrals import INTEGRAL
from lowvar.integrals.base import make
from lowvar.testing.integrators import IntegratorContract

# variants of what the others do: their linear algebra or their loop of training is the same; auto chooses among them,
# and test_auto.py has its choices, errors and intervals
VARIANTS = (
    *("sparse_control_functional", "alternating", "convex", "additive"),
    *("paper_cf", "paper_cv", "paper_vv_fixed", "auto"),
)


class TestIntegrators(IntegratorContract):
    @pytest.fixture(
        params=[pytest.param(name, marks=pytest.mark.long if name in VARIANTS else ()) for name in INTEGRAL.own]
    )
    def name(self, request):
        return request.param


class TestVariants:
    """What make test asks of them."""

    @pytest.fixture(params=VARIANTS)
    def name(self, request):
        return request.param

    test_shapes_and_flags = IntegratorContract.test_shapes_and_flags
    test_draws = IntegratorContract.test_repeats_itself_and_draws_only_if_it_says_so


def test_unknown_options_are_refused():
    with pytest.raises(UserError, match="vector_valued: unknown option 'nuget': did you mean 'nugget'"):
        make("vector_valued", {"nuget": 1.0})
    with pytest.raises(UserError, match="unknown integrator 'control_function': did you mean 'control_functional'"):
        make("control_function", {})
