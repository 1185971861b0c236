"""Checks the cases without the library: truths, scores, and whether mean field can represent a posterior."""

import numpy as np

from trust_cases.common import generator
from trust_cases.functions import Function
from trust_cases.integrals import Integral
from trust_cases.models import STEPS_OF_CHECK, Model

DRAWS = 2_000_000
CHUNK = 50_000
FAR = 4.5  # standard errors
CHAINS = 40  # number of chains whose means are compared with the truth


def integral(case: Integral) -> tuple[bool, str]:
    """The truth against independent draws of the targets and chains, and scores against central differences."""
    truth, sums, squares, seen = case.truth(), 0.0, 0.0, 0
    wrong = 0.0
    for target in case.targets:
        x = target.draw(generator(case.name, 90), 200)
        for j in range(target.dim):
            step = np.zeros(target.dim)
            step[j] = 1e-5
            slope = (target.log_density(x + step) - target.log_density(x - step)) / 2e-5
            score = target.score(x)[:, j]
            wrong = max(wrong, float((np.abs(slope - score) / (1 + np.abs(score))).max()))
    while seen < DRAWS:
        rng = generator(case.name, 91, seen)
        columns = [value(target.draw(rng, CHUNK)) for target, value in zip(case.targets, case.values, strict=True)]
        values = np.column_stack([c if c.ndim == 2 else c[:, None] for c in columns])
        sums, squares, seen = sums + values.sum(0), squares + ((values - truth) ** 2).sum(0), seen + CHUNK
    mean = sums / seen
    error = np.sqrt((squares / seen - (mean - truth) ** 2) / seen)
    z = (mean - truth) / error
    said = ", ".join(f"{t:.6g} ({one:+.1f} se)" for t, one in zip(truth, z, strict=True))
    said += f"; scores off by {wrong:.1e}"
    right = bool((np.abs(z) < FAR).all() and wrong < 1e-3)
    if case.chain and not case.wrong:
        means = np.array([np.atleast_2d(values.T).mean(1) for _, _, values in case.inputs(CHAINS)])
        z = (means.mean(0) - truth) / (means.std(0, ddof=1) / CHAINS**0.5)
        right &= bool((np.abs(z) < FAR).all())
        said += "; chains " + ", ".join(f"{one:+.1f} se" for one in z)
    return right, said


def model(case: Model) -> tuple[bool, str]:
    """Checks `unlike` against k-hat of the best mean-field fit, by L-BFGS from NumPyro's fit, unless it is close."""
    if case.mistake:
        return True, f"mistake: {case.mistake}"
    import arviz
    import jax

    from trust_cases.run import Elbo, _numpyro

    data = case.made()
    elbo = Elbo(case, data)
    mean, log_sigma = elbo.best(_numpyro(case, data, 0, STEPS_OF_CHECK))
    values = []
    for seed in range(3):
        eps = generator(case.name, 92, seed).normal(size=(50_000, elbo.dim))
        with jax.enable_x64(True):
            parts = [np.asarray(elbo.density(mean + np.exp(log_sigma) * part)) for part in np.array_split(eps, 50)]
        density = np.concatenate(parts)
        values.append(float(np.asarray(arviz.psislw(density + 0.5 * (eps**2).sum(1))[1])))
    khat = float(np.median(values))
    right = case.unlike is None or (khat > 0.7) == case.unlike
    return right, f"k-hat {khat:.2f} [{min(values):.2f}, {max(values):.2f}]"


def function(case: Function) -> tuple[bool, str]:
    """Checks that the known point reaches the level, and the start does not."""
    start = case.value(case.start())
    if case.level is None or case.argmin is None:
        return True, f"nothing to find; {start:.4g} at the start"
    at = case.value(case.argmin())
    return bool(
        at <= case.level < start
    ), f"{at:.6g} at the known point, {case.level:.6g} wanted, {start:.4g} at the start"
