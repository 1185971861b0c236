"""Integrators: one file each, in PyTorch float64, all repetitions at once.

``exact`` has kernel methods in closed form, ``parametric`` polynomials, ``choosing`` the method ``auto``,
``kernels`` the kernels; the code that all of them share lies beside them.
"""

from lowvar.registry import Registry, row

# integrators that need no PyTorch; `auto` tries those that can run
NUMPY = "auto", "monte_carlo", "zero_variance"

# factories (**options) -> Integrator
INTEGRAL = Registry(
    "integrator",
    {
        name: row(f"{module}:{name}", packages=() if name in NUMPY else ("torch",), extra="torch")
        for name, module in {
            "auto": "lowvar.integrals.choosing.auto",
            "monte_carlo": "lowvar.integrals.monte_carlo",
            "zero_variance": "lowvar.integrals.parametric.zero_variance",
            "control_functional": "lowvar.integrals.exact.control_functional",
            "sparse_control_functional": "lowvar.integrals.exact.sparse_control_functional",
            "vector_valued": "lowvar.integrals.exact.vector_valued",
            "additive": "lowvar.integrals.parametric.additive",
        }.items()
    },
    group="lowvar.integrators",
)
