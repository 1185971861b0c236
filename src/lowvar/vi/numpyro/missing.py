"""Values that a model imputes (``obs_mask``) and does not use: left out, which integrates them out exactly.

With ``obs_mask``, NumPyro splits a site into an observed and a latent one; each entry has the one or the other.
Where nothing else depends on the latent one, its density integrates to one. It need not be continuous then, and no
guide has to approximate it. Otherwise it is a latent variable of the rows, like any other.
"""

import jax
import jax.numpy as jnp
import numpy as np
from numpyro import handlers
from numpyro.primitives import Messenger

from lowvar.vi.numpyro.trace import is_latent, log_prob_of, sites_of

_SEEDS = 3  # draws of the imputed values that are compared


class Unused(Messenger):
    """A model without some latent sites: they have a value within their support, and no density."""

    def __init__(self, fn, names):
        self.names = names
        super().__init__(fn)

    def process_message(self, msg):
        """Gives the value and hides the site."""
        if msg["type"] == "sample" and msg["name"] in self.names:
            shape = jnp.zeros(msg["fn"].shape(), jnp.result_type(float))
            msg["value"] = msg["fn"].support.feasible_like(shape)
            msg["stop"] = True


def without_unused(model, data, trace):
    """``model`` without the imputed sites that no other density depends on, and their names."""
    imputed = {
        name
        for name, site in trace.items()
        if is_latent(site) and name.endswith("_unobserved") and f"{name.removesuffix('_unobserved')}_observed" in trace
    }
    unused = {name for name in imputed if not _is_used(model, data, trace, name)}
    return (Unused(model, unused) if unused else model), unused


def _is_used(model, data, trace, name) -> bool:
    """Whether a density of the model changes with the value of a latent site, all others being equal."""
    fixed = {key: site["value"] for key, site in trace.items() if is_latent(site) and key != name}
    fixed |= {key: site["value"] for key, site in trace.items() if site["type"] in ("param", "plate")}

    def densities(seed):
        seeded = handlers.seed(handlers.substitute(model, data=fixed), jax.random.key(seed))
        sites = sites_of(seeded, **data)
        return [
            np.asarray(log_prob_of(site)) for key, site in sites.items() if site["type"] == "sample" and key != name
        ]

    first, *others = (densities(seed) for seed in range(_SEEDS))
    return not all(np.array_equal(a, b, equal_nan=True) for other in others for a, b in zip(first, other, strict=True))
