"""Integrals by control variates: one file for each integrator, all repetitions at once.

``exact`` has the kernel methods, and ``kernels`` their kernels. An integrator's interface is in
``base``; ``inputs`` and ``sites`` convert a user's samples.
"""

from lowvar.registry import Registry

# factories (**options) -> Integrator
INTEGRAL = Registry(
    "integrator",
    {
        "auto": "lowvar.integrals.auto:auto",
        "monte_carlo": "lowvar.integrals.monte_carlo:monte_carlo",
        "zero_variance": "lowvar.integrals.zero_variance:zero_variance",
        "control_functional": "lowvar.integrals.exact.control_functional:control_functional",
        "sparse_control_functional": "lowvar.integrals.exact.sparse_control_functional:sparse_control_functional",
        "vector_valued": "lowvar.integrals.exact.vector_valued:vector_valued",
    },
    group="lowvar.integrators",
)
