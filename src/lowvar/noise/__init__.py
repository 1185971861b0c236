"""All randomness: mini-batches of data and base noise for the guide.

JAX's counter-based generator draws the noise for both backends, so the same seed gives the same noise to every
estimator and to both backends.
"""

from lowvar.noise.batches import BATCHES, Batches, fixed, iid, reshuffled
from lowvar.noise.gaussian import GAUSSIAN, Gaussian, antithetic, independent, orthogonal, rqmc
from lowvar.noise.keys import named_key
from lowvar.noise.sampler import Noise, Plan, Sampler, sampler

__all__ = [
    "BATCHES",
    "GAUSSIAN",
    "Batches",
    "Gaussian",
    "Noise",
    "Plan",
    "Sampler",
    "antithetic",
    "fixed",
    "iid",
    "independent",
    "named_key",
    "orthogonal",
    "reshuffled",
    "rqmc",
    "sampler",
]
