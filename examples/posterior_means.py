"""Posterior means with control variates, from 400 NUTS draws of a NumPyro model.

    python examples/posterior_means.py  # with scikit-learn, for the data

The reference is a run with 50 times as many draws, itself sharpened by control variates of another kind.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from sklearn.datasets import load_diabetes

import lowvar

numpyro.enable_x64()


def model(x, y=None):
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    w = numpyro.sample("w", dist.StudentT(4.0, 0.0, 0.5).expand([x.shape[1]]).to_event(1))
    numpyro.sample("y", dist.Normal(x @ w, scale), obs=y)


def draw(data, num_samples, seed):
    mcmc = numpyro.infer.MCMC(numpyro.infer.NUTS(model), num_warmup=500, num_samples=num_samples, progress_bar=False)
    mcmc.run(jax.random.key(seed), **data)
    return mcmc.get_samples()


def quantities(draws):
    """What we want the posterior means of, ``(m, T)``."""
    return np.column_stack([draws["scale"], draws["w"][:, :2], np.exp(draws["w"][:, 2])])


def main():
    x, y = load_diabetes(return_X_y=True)
    x, y = x[:80, :5] / x[:80, :5].std(axis=0), (y[:80] - y[:80].mean()) / y[:80].std()
    data = {"x": jnp.asarray(x), "y": jnp.asarray(y)}
    draws = draw(data, 400, seed=0)
    # the five lines
    points, scores = lowvar.scores(model, data, draws)
    names = ["scale", "w[0]", "w[1]", "exp w[2]"]
    result = lowvar.integrate(points, scores, quantities(draws), chain=True, exact_scores=True, names=names)
    print(result)

    many = draw(data, 20_000, seed=1)
    long_run = lowvar.integrate(
        *lowvar.scores(model, data, many), quantities(many), "zero_variance", chain=True, exact_scores=True
    )
    print("\ndifference from a long run")
    for row, exact, error in zip(result.table.itertuples(), long_run.value, long_run.standard_error, strict=True):
        print(
            f"{row.task:9} (known to {error:.0e})  Monte Carlo {abs(row.monte_carlo - exact):.1e}, "
            f"control variates {abs(row.value - exact):.1e}"
        )


if __name__ == "__main__":
    main()
