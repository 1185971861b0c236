from lowvar_example import damped_cv

from lowvar.testing import estimator_contract

pytest_plugins = ["lowvar.testing"]  # float64

TestDampedCV = estimator_contract(damped_cv)
