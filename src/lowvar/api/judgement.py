"""What a fit tells of itself: k-hat, and notes on convergence and on the guide."""

from typing import Any

import numpy as np

from lowvar.analysis import psis
from lowvar.analysis.gain import gain
from lowvar.api.other_modes import other_mode
from lowvar.api.stopping import fall_of, late_rise
from lowvar.backends.generator import numpy_generator
from lowvar.noise import named_key

# draws for k-hat (1000 would miss a correlation of 0.98 one time in four); maximum of draws x data rows
_KHAT_SAMPLES, _KHAT_BUDGET = 10_000, 2**25
_TOGETHER = 50  # draws of an ELBO, from which on the draws of k-hat come as many at a time, in the same program
_MANY = 20  # from this dimension on, small misfits accumulate
_WIDER = 1.5  # a note reports a larger ratio of the posterior's to the guide's standard deviation,
_NARROWER = 1.25  # and a larger one of the guide's to the posterior's, which steps would mend
_CHECK = (
    "Check the intervals against NUTS, {wider}or reparameterise the model (whitened features, non-centred hierarchies)"
)
_RISE = 1.0  # not converged: late in the run, the ELBO rises by more nats


def judged(fit: Any, solver: Any, seed: int, draws: int | None = None) -> tuple[float | None, tuple[str, ...]]:
    """``(k-hat, notes)`` of a ``Fit``.

    Args:
        fit: the fit.
        solver: its ``SolverSpec``.
        seed: its seed.
        draws: for k-hat; 0 for none, and None for as many as the number of rows allows.
    """
    problem, k, narrow, wide, mode = fit.problem, None, None, None, ""
    params = {block: problem.backend.asarray(value) for block, value in fit.guide_params.items()}
    if draws is None:
        draws = min(_KHAT_SAMPLES, _KHAT_BUDGET // problem.rows_of_pass)
        draws = draws if draws >= psis.LEAST else 0
    if draws:
        eps = numpy_generator(named_key(seed, "khat")).standard_normal((draws, problem.noise_dim), np.float32)
        eps = eps.astype(problem.dtype)
        together = solver.elbo_samples if _TOGETHER <= solver.elbo_samples <= draws else None
        weights = psis.log_weights(problem, params, eps, together)
        k = psis.khat(weights)
        narrow, wide = _extremes(problem, params, weights, eps)
        mode = other_mode(problem, params, draws, together)
    good = k is not None and k <= psis.good(draws)
    unfinished, late = _unfinished(fit, params, solver, seed, good)
    if good and wide and not unfinished:
        unfinished = (
            f"the fit has not converged: by importance weights, the guide's standard deviation of {wide[0]} is "
            f"{wide[1]:.1f} times the posterior's; increase num_steps, or change step_size"
        )
    notes = [f"{problem.name}: {unfinished}"] if unfinished else []
    if k is not None and not good:
        notes.append(
            f"{problem.name}: k-hat {k:.2f} is above {psis.good(draws):.2g}: {_remedy(fit, params, solver, late)}"
        )
    elif narrow and not late:
        guide = problem.guide
        early = "" if guide.factorised else ", or its correlations are not fitted yet: increase num_steps first"
        notes.append(
            f"{problem.name}: by importance weights, the standard deviation of {narrow[0]} is {narrow[1]:.1f} times "
            f"the guide's: {guide.about} guide is too narrow where latent variables are {guide.misses[0]}{early}. "
            f"{_CHECK.format(wider=_wider(problem))}"
        )
    return k, (*notes, mode) if mode else tuple(notes)


def _unfinished(fit, params, solver, seed, good: bool) -> tuple[str, bool]:
    """What the fit lacks to its optimum, in words, and whether its ELBO still rises; nothing if it has arrived."""
    problem, trace = fit.problem, fit.elbo
    fall, limit = fall_of(solver.schedule, trace), max(_RISE, 2 * float(trace["elbo_se"].iloc[-1]))
    rise, share = late_rise(trace[trace["iteration"] <= fall])
    fell, rows = fall < np.inf, problem.local if solver.batch_size < problem.N else None
    late = rise > limit and not (fell and good)  # otherwise it converged during the fall
    if rows is not None and not late:
        left, error = gain(problem, params, named_key(seed, "gain"))
        own = rows.own
        if left[own].sum() - 2 * np.linalg.norm(error[own]) > limit:
            visits = trace["iteration"].iloc[-1] * solver.batch_size / problem.N
            return (
                f"by its gradient, the ELBO would rise by {left[own].sum():.3g} nats in the latent variables of the "
                f"rows alone, each of which was visited {visits:.3g} times: increase num_steps, decay the step size "
                "(schedule), or give a larger batch_size"
            ), False
    if late and share == 1 and not fell:
        return (
            f"whether the fit has converged cannot be told from so few steps ({trace['iteration'].iloc[-1]}), in which "
            f"the ELBO rose by {rise:.3g} nats: increase num_steps"
        ), True
    steps = f"the {fall:.0f} steps before the step size fell" if fell else "the steps"
    visited = trace["iteration"].iloc[-1] * solver.batch_size / problem.N
    only = f", which visited {100 * visited:.2g} % of the rows" if visited < 1 else ""
    risen = f"the ELBO still rose by {rise:.3g} nats in the last {100 * share:.0f} % of {steps}{only}"
    if late:
        return f"the fit has not converged: {risen}; increase num_steps, or change step_size", True
    if visited < 1 and not good and not fell:  # no other check sees it
        return (
            f"whether the fit has converged cannot be told: it visited {100 * visited:.2g} % of the rows; in the last "
            f"{100 * share:.0f} % of the steps the ELBO changed by {rise:+.3g} nats, and only a rise above {limit:.3g} "
            "would be seen; increase num_steps or batch_size, or decay the step size (schedule)"
        ), False
    return "", False


def _extremes(problem, params, weights, eps) -> tuple[tuple[str, float] | None, tuple[str, float] | None]:
    """The latent sites whose posterior is widest and narrowest relative to the guide, if by much.

    Returns:
        Site and ratio of the posterior's to the guide's standard deviation, None up to ``_WIDER``; site and ratio of
        the guide's to the posterior's, None up to ``_NARROWER`` and four standard errors.
    """
    if np.isnan(weights).any() or not np.isfinite(weights.max()):
        return None, None
    backend = problem.backend
    drawn = backend.jit(lambda p, eps: (backend.vmap(lambda one: problem.guide.transform(p, one))(eps),
                                        problem.guide.scale(p)))  # fmt: skip
    z, scale = backend.to_numpy(drawn(params, backend.asarray(eps)))
    free = problem.noiseless is None or ~np.asarray(problem.noiseless)
    ratio = np.where(free, psis.spread(weights, z) / np.where(free, scale, 1.0), 1.0)
    shares = np.exp(weights - weights.max())
    error = np.sqrt((shares**2).sum() / 2) / shares.sum()

    def most(of, least):
        pairs = ((name, float(of[where].max())) for name, where in problem.sites.items())
        site, value = max(pairs, key=lambda pair: pair[1])
        return (site, value) if value > least else None

    return most(ratio, _WIDER), most(1 / ratio, _NARROWER * (1 + 4 * error))


def _remedy(fit, params, solver, late: bool) -> str:
    """Possible causes of a large k-hat, and remedies."""
    problem, first, noisy = fit.problem, "", noisy_of(fit.problem)
    least = float(problem.backend.to_numpy(problem.guide.scale(params))[noisy].min())
    step = solver.step_sizes[0]
    if late:
        first = "k-hat says little before convergence: increase num_steps first; if it stays high, "
    elif solver.optimizer == "adam" and not solver.own and solver.schedule is None and step > least / 2:
        first = (
            f"the step size {step:g} is not small relative to the smallest standard deviation, {least:.2g}, so the "
            "means still fluctuate: first decay it (schedule) or reduce it; if k-hat stays high, "
        )
    many = (
        f"; in {len(noisy)} dimensions small misfits add up to such a k-hat, and means may still be right"
        if len(noisy) >= _MANY
        else ""
    )
    return (
        f"{first}{problem.guide.about} normal approximates this posterior badly, and its standard deviations may be "
        f"far too small, as where latent variables are {problem.guide.misses[1]}{many}. "
        f"{_CHECK.format(wider=_wider(problem))}"
    )


def _wider(problem) -> str:
    """The advice to fit a wider guide; not where rows have latent variables, with which dense guides are too large.

    Nor with a single one, in which all guides are the same.
    """
    return "" if problem.local is not None or len(noisy_of(problem)) < 2 else problem.guide.wider


def noisy_of(problem) -> np.ndarray:
    """The coordinates with noise, those that are no point estimates."""
    return np.arange(problem.dim) if problem.noiseless is None else np.flatnonzero(~np.asarray(problem.noiseless))
