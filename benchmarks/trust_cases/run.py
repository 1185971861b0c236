"""Runs a case, and records the outcome of each repetition or seed."""

import time
from functools import partial
from typing import Any

import numpy as np

from trust_cases.common import Settings, call
from trust_cases.functions import Function
from trust_cases.integrals import Integral
from trust_cases.models import Model

BATCH, STEPS, STEP_SIZE = 100, 5000, 0.01  # of NumPyro's own SVI: the defaults that `fit` documents
OPTIMISED = 128  # particles of the ELBO that the reference maximises


def integral(case: Integral, settings: Settings) -> list[dict[str, Any]]:
    """A row for each repetition and task."""
    import lowvar

    truth, rows = case.truth(), []
    for r, (samples, scores, values) in enumerate(case.inputs(settings.repetitions)):
        start = time.perf_counter()
        vouched = {"exact_scores": True} if case.given is None else {}  # nobody vouches for wrong scores
        outcome = call(lowvar.integrate, samples, scores, values, chain=case.chain, **vouched)
        seconds = time.perf_counter() - start
        table = None if outcome.result is None else outcome.result.table
        for t, exact in enumerate(truth):
            row = {
                "repetition": r, "task": t, "truth": float(exact), "said": " | ".join(outcome.said),
                "refused": outcome.refused, "crashed": outcome.crashed, "seconds": seconds,
            }  # fmt: skip
            if table is not None:
                own = table.iloc[t]
                row |= {"method": outcome.result.method} | {
                    name: float(own[name]) for name in ("value", "standard_error", "low", "high", "monte_carlo",
                                                        "monte_carlo_se")
                }  # fmt: skip
            rows.append(row)
    return rows


def model(case: Model, settings: Settings) -> list[dict[str, Any]]:
    """A row for each seed and way of fitting, with the final ELBO on the same draws, and the best known ELBO."""
    import lowvar

    data, length = case.made(), {} if settings.steps is None else {"num_steps": settings.steps}
    if case.mistake:
        outcome = call(lowvar.fit, case.model, data, progress=False, **({"num_steps": 200} | length))
        return [_fit_row("default", 0, outcome)]
    rows, params = [], []
    for seed in range(settings.seeds):
        for way, more in (("default", {}), ("naive", {"estimator": "naive"})):
            start = time.perf_counter()
            outcome = call(lowvar.fit, case.model, data, seed=seed, progress=False, **more, **length)
            rows.append(_fit_row(way, seed, outcome) | {"seconds": time.perf_counter() - start})
            params.append(None if outcome.result is None else outcome.result.params)
        start = time.perf_counter()
        found = _numpyro(case, data, seed, settings.steps or STEPS)
        rows.append({"way": "numpyro", "seed": seed, "seconds": time.perf_counter() - start})
        params.append(found)
    elbo = Elbo(case, data)
    for row, found in zip(rows, params, strict=True):
        if found is not None:
            value, error = elbo.at(found, settings.draws)
            row |= {"elbo": value, "elbo_se": error}
    reached = [(row["elbo"], i) for i, row in enumerate(rows) if np.isfinite(row.get("elbo", np.nan))]
    if reached and settings.steps is None:
        value, error = elbo.at(elbo.best(params[max(reached)[1]]), settings.draws)
        rows.append({"way": "best", "seed": 0, "elbo": value, "elbo_se": error})
    return rows


def _fit_row(way, seed, outcome):
    khat = getattr(outcome.result, "khat", None)
    return {
        "way": way, "seed": seed, "said": " | ".join(outcome.said), "refused": outcome.refused,
        "crashed": outcome.crashed, "khat": np.nan if khat is None else float(khat),
    }  # fmt: skip


def _numpyro(case, data, seed, steps):
    """The final parameters of NumPyro's own SVI with `AutoNormal`."""
    import jax
    import numpyro
    from numpyro.infer import SVI, Trace_ELBO
    from numpyro.infer.autoguide import AutoNormal

    arrays = {key: jax.numpy.asarray(value) for key, value in data.items()}
    rows = len(next(iter(arrays.values())))
    batch = {"batch_size": BATCH} if rows > BATCH else {}
    model = partial(case.model, **batch)
    svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(STEP_SIZE), Trace_ELBO())

    @jax.jit
    def fitted(key):
        state = svi.init(key, **arrays)
        state, _ = jax.lax.scan(lambda state, _: (svi.update(state, **arrays)[0], None), state, length=steps)
        return svi.get_params(state)

    return fitted(jax.random.key(seed))


class Elbo:
    """The ELBO of a mean-field normal on all the data, by NumPyro's density alone, in float64."""

    def __init__(self, case: Model, data):
        import jax
        import jax.numpy as jnp
        from numpyro import handlers
        from numpyro.infer.util import potential_energy, unconstrain_fn

        with jax.enable_x64(True):
            rows = {key: jnp.asarray(value) for key, value in data.items()}
            trace = handlers.trace(handlers.seed(case.model, 0)).get_trace(**rows)
            latent = {
                name: site["value"]
                for name, site in trace.items()
                if site["type"] == "sample" and not site["is_observed"]
            }
            free = unconstrain_fn(case.model, (), rows, latent)
            start, self.unravel = jax.flatten_util.ravel_pytree(free)
        self.dim, self.sites = start.size, sorted(free)
        self.density = jax.jit(jax.vmap(lambda z: -potential_energy(case.model, (), rows, self.unravel(z))))

    def flat(self, params) -> tuple[np.ndarray, np.ndarray]:
        """Means and log standard deviations under `AutoNormal`'s names, as vectors."""
        import jax
        import jax.numpy as jnp

        with jax.enable_x64(True):
            parts = [
                jax.flatten_util.ravel_pytree(
                    {site: jnp.asarray(np.asarray(params[f"{site}_auto_{kind}"], float)) for site in self.sites}
                )[0]
                for kind in ("loc", "scale")
            ]
        return np.asarray(parts[0]), np.log(np.asarray(parts[1]))

    def at(self, params, draws: int, seed: int = 7) -> tuple[float, float]:
        """The ELBO and its standard error; all parameters share the draws."""
        import jax

        mean, log_sigma = self.flat(params) if isinstance(params, dict) else params
        eps = np.random.default_rng(seed).normal(size=(draws, self.dim))
        entropy = log_sigma.sum() + 0.5 * self.dim * np.log(2 * np.pi) + 0.5 * (eps**2).sum(1)
        with jax.enable_x64(True):
            parts = [np.asarray(self.density(mean + np.exp(log_sigma) * part)) for part in np.array_split(eps, 20)]
        terms = np.concatenate(parts) + entropy
        return float(terms.mean()), float(terms.std(ddof=1) / draws**0.5)

    def best(self, params) -> tuple[np.ndarray, np.ndarray]:
        """The maximum of an ELBO with fixed draws by L-BFGS, from given parameters: an independent reference."""
        import jax
        import jax.numpy as jnp
        import scipy.optimize
        import scipy.stats

        mean, log_sigma = self.flat(params)
        with jax.enable_x64(True):
            uniform = scipy.stats.qmc.Sobol(self.dim, seed=11).random(OPTIMISED)
            half = jnp.asarray(scipy.stats.norm.ppf(np.clip(uniform, 1e-9, 1 - 1e-9)))
            eps, start, sigma = jnp.concatenate([half, -half]), jnp.asarray(mean), jnp.exp(jnp.asarray(log_sigma))

            @jax.jit
            def loss(vector):
                shift, log_factor = vector[: self.dim], vector[self.dim :]
                z = start + sigma * (shift + jnp.exp(log_factor) * eps)
                return -self.density(z).mean() - log_factor.sum()

            slope = jax.jit(jax.value_and_grad(loss))

            def both(vector):
                value, gradient = slope(jnp.asarray(vector))
                return float(value), np.asarray(gradient, float)

            found = scipy.optimize.minimize(
                both, np.zeros(2 * self.dim), jac=True, method="L-BFGS-B", options={"maxiter": 2000, "maxfun": 4000}
            ).x
        return mean + np.exp(log_sigma) * found[: self.dim], log_sigma + found[self.dim :]


def function(case: Function, settings: Settings) -> list[dict[str, Any]]:
    """A row for each seed and search."""
    import lowvar

    start, rows = case.start(), []
    budget = max(200, int(settings.share * case.budget))
    target = case.target if case.target is not None or case.noisy or not case.aimed else case.level
    for seed in range(settings.seeds):
        for way, more in (("default", {}), ("pycma", {"method": "pycma"})):
            called, count = case.called(seed), [0]

            def f(x, called=called, count=count):
                count[0] += 1
                return called(x)

            begun = time.perf_counter()
            outcome = call(
                lowvar.minimize, f, start, case.sigma0, budget=budget, target=target, seed=seed, progress=False,
                **more, **case.options,
            )  # fmt: skip
            row = {
                "way": way, "seed": seed, "said": " | ".join(outcome.said), "refused": outcome.refused,
                "crashed": outcome.crashed, "seconds": time.perf_counter() - begun, "calls": count[0],
                "budget": budget,
            }  # fmt: skip
            result = outcome.result
            if result is not None:
                at = result.mean if case.noisy and target is None else result.x
                row |= {
                    "success": bool(result.success), "status": result.status, "message": result.message,
                    "fun": float(result.fun), "true": case.value(np.asarray(at)), "nfev": int(result.nfev),
                    "inside": _inside(case, result.x), "same": case.noisy is not None or _same(case, result),
                }  # fmt: skip
            rows.append(row)
    return rows


def _inside(case, x):
    if "bounds" not in case.options:
        return True
    low, high = case.options["bounds"]
    return bool(((np.asarray(x) >= low) & (np.asarray(x) <= high)).all())


def _same(case, result):
    return bool(np.isclose(case.value(np.asarray(result.x)), result.fun, rtol=1e-9, atol=1e-12))
