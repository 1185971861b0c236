"""Integrals by control variates: one file for each integrator, all repetitions at once.

``exact`` has the kernel methods, in PyTorch float64, and ``kernels`` their kernels. An integrator's interface is in
``base``; ``inputs`` and ``sites`` convert a user's samples.
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
            "auto": "lowvar.integrals.auto",
            "monte_carlo": "lowvar.integrals.monte_carlo",
            "zero_variance": "lowvar.integrals.zero_variance",
            "control_functional": "lowvar.integrals.exact.control_functional",
            "sparse_control_functional": "lowvar.integrals.exact.sparse_control_functional",
            "vector_valued": "lowvar.integrals.exact.vector_valued",
        }.items()
    },
    group="lowvar.integrators",
)
