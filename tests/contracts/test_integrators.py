"""Every registered integrator keeps its contract."""

import pytest

from lowvar.errors import UserError
from lowvar.estimators import INTEGRAL
from lowvar.estimators.integral.options import make
from lowvar.testing.integrators import IntegratorContract


class TestIntegrators(IntegratorContract):
    @pytest.fixture(params=INTEGRAL.own)
    def name(self, request):
        return request.param


def test_unknown_options_are_refused():
    with pytest.raises(UserError, match="vector_valued: unknown option 'nuget': did you mean 'nugget'"):
        make("vector_valued", {"nuget": 1.0})
    with pytest.raises(UserError, match="unknown integrator 'control_function': did you mean 'control_functional'"):
        make("control_function", {})
