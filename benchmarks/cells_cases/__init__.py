"""The cells of ``benchmarks/cells.py``: the draw, and a module for each paper."""

from collections.abc import Callable

FUNCTIONS = {
    "joint_mnist:fewer-iterations-mnist": ("joint", "mnist_iterations"),
    "joint_table1:lowest-along-sonar": ("joint", "along_sonar"),
    "joint_table1:table1-mnist-monte-carlo": ("joint", "mnist_monte_carlo"),
    "mlmc:conditional-variance-blr": ("mlmc", "variance_logistic"),
    "mlmc:elbo-bnn": ("mlmc", "elbo_network"),
    "mlmc_tuned:elbo-blr": ("mlmc", "elbo_logistic_tuned"),
    "ingo_steps:normalised-stays-discus": ("ingo", "reinforce_normalised_discus"),
    "ingo_rl:faster-than-es-half-cheetah": ("ingo", "half_cheetah"),
    "ingo_rates:orthogonal-kink": ("ingo", "orthogonal_kink"),
    "vvcv_unbalanced:swapped-no-gain-60": ("vvcv", "unbalanced_swapped"),
    "vvcv_table2:table2-paper-vv-fixed-150": ("vvcv", "table_2_fixed"),
    "vvcv_lotka:table3-paper-cf-5": ("vvcv", "hares_control_functional"),
}


def function(cell: str) -> Callable:
    """The function that computes a drawn cell, in double precision of JAX where it does not ask for single."""
    from importlib import import_module

    import jax

    jax.config.update("jax_enable_x64", True)
    module, name = FUNCTIONS[cell]
    return getattr(import_module(f"cells_cases.{module}"), name)
