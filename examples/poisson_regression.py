"""Claim counts: Poisson regression whose coefficients share an unknown, positive scale.

Make the data, then ask where the gradient's noise comes from:

    python examples/poisson_regression.py claims.npz
    lowvar decompose examples/poisson_regression.py:model --data claims.npz --batch-size 100
"""

import sys

import numpy as np
import numpyro
import numpyro.distributions as dist


def model(x, counts=None, batch_size=None):
    """``scale ~ HalfNormal(1)``, ``w ~ N(0, scale^2)``, ``counts_n ~ Poisson(exp(bias + x_n . w))``."""
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    bias = numpyro.sample("bias", dist.Normal(0.0, 1.0))
    w = numpyro.sample("w", dist.Normal(0.0, scale).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as index:
        rate = np.e ** (bias + x[index] @ w)
        obs = None if counts is None else counts[index]
        numpyro.sample("counts", dist.Poisson(rate), obs=obs)


def simulate(rows=12_000, features=12, seed=0):
    """Data drawn from the model: ``{"x": (rows, features), "counts": (rows,)}``."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features))
    w = 0.3 * rng.normal(size=features)
    return {"x": x, "counts": rng.poisson(np.exp(0.2 + x @ w))}


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else "claims.npz"
    np.savez(target, **simulate())
    print(f"wrote {target}")
