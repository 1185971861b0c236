"""What a fit tells of itself: k-hat, and notes on convergence and on the guide."""

from typing import Any

import numpy as np

from lowvar.core.generator import numpy_generator
from lowvar.core.keys import named_key
from lowvar.vi import psis
from lowvar.vi.gain import Optimum, gain, response, to_optimum
from lowvar.vi.guides.gaussian import GUIDES
from lowvar.vi.other_modes import other_mode
from lowvar.vi.stopping import fall_of, late_rise

# draws for k-hat (1000 would miss a correlation of 0.98 one time in four); maximum of draws x data rows
_KHAT_SAMPLES, _KHAT_BUDGET = 10_000, 2**25
_TOGETHER = 50  # from this ELBO size on, k-hat reuses its program
_MANY = 20  # from this dimension on, small misfits accumulate
# A note reports a larger ratio of the posterior's to the guide's standard deviation by importance weights, and a
# smaller one by linear response, where it exceeds its bound by two standard errors. Of 30 best guides of normal
# posteriors with a correlation of 0.55, 0.6 and 0.7, 60, 100 and 100 % exceed it; of 60 in 5 to 100 independent
# dimensions, with standard deviations that scatter by 3 %, none.
_WIDER, _NARROW, _SURE = 1.5, 1.15, 2
# a note reports larger relative errors of standard deviations that the optimisation left, and of means, in standard
# deviations; each by more than so many standard errors
_SD_OFF, _MEAN_OFF, _ERRORS = 0.1, 0.25, 3
_LOCAL = 1.0  # standard deviations from the optimum, above which its distance is unknown
_CHECK = (
    "Check the intervals against NUTS, {wider}or reparameterise the model (whitened features, non-centred hierarchies)"
)
# k-hat is the shape of a tail, also of weights that hardly vary: it is 0.3 to 0.9 at the best mean-field guide of the
# mean and scale of 60 normal numbers, and above 1 if that is 2 % wider. With so large a share of effective draws,
# standard deviations are within some percent of the posterior's.
_ALIKE = 0.9
_RISE = 1.0  # not converged: late in the run, the ELBO rises by more nats


def judged(
    fit: Any, solver: Any, seed: int, trace: Any, draws: int | None = None
) -> tuple[float | None, Optimum | None, tuple[str, ...]]:
    """``(k-hat, distance from the optimum, notes)`` of a ``Fit``.

    Args:
        fit: the fit.
        solver: its ``Settings``.
        seed: its seed.
        trace: the ELBOs of its iterates.
        draws: for k-hat; 0 for none, and None for as many as the number of rows allows.
    """
    problem, k, narrow, optimum, mode, alike = fit.problem, None, None, None, "", False
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
        narrow, optimum = _compared(problem, params, weights, eps)
        mode = other_mode(problem, params, draws, together)
        alike = psis.worth(weights) > _ALIKE
    good = k is not None and (k <= psis.good(draws) or alike)
    unfinished, late = _unfinished(fit.problem, params, solver, seed, trace, good)
    unfinished = unfinished or _left(problem, optimum, solver)
    if optimum is not None and (late or np.nanmax(np.abs(optimum.mean), initial=0.0) > _LOCAL):
        optimum = None  # there the curvature, from which it is computed, may be another: coupled scales, as of groups
    notes = [f"{problem.name}: {unfinished}"] if unfinished else []
    if k is not None and not good:
        notes.append(
            f"{problem.name}: k-hat {k:.2f} is above {psis.good(draws):.2g}: {_remedy(fit, params, solver, late)}"
        )
    elif narrow and not late:
        guide = problem.guide
        early = "" if guide.factorised else ", or its correlations are not fitted yet: increase num_steps first"
        notes.append(
            f"{problem.name}: by importance weights, the standard deviation of {narrow[0]} is {narrow[1]:.2g} times "
            f"the guide's: {guide.about} guide is too narrow where latent variables are {guide.misses[0]}{early}. "
            f"{_CHECK.format(wider=_wider(problem))}"
        )
    return k, optimum, (*notes, mode) if mode else tuple(notes)


def _unfinished(problem, params, solver, seed, trace, good: bool) -> tuple[str, bool]:
    """What the fit lacks to its optimum, in words, and whether its ELBO still rises; nothing if it has arrived."""
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


def _compared(problem, params, weights, eps) -> tuple[tuple[str, float] | None, Optimum | None]:
    """The guide beside the posterior, and beside the best guide of its family.

    Returns:
        The latent site whose posterior is widest relative to the guide, with the ratio of standard deviations, None
        where it is small; and the distance from the best guide, None for families in which coordinates are tied.
    """
    if np.isnan(weights).any() or not np.isfinite(weights.max()):
        return None, None
    backend, guide = problem.backend, problem.guide
    drawn = backend.jit(lambda p, eps: (backend.vmap(lambda one: guide.transform(p, one))(eps),
                                        guide.point(p)["mu"], guide.scale(p)))  # fmt: skip
    z, mean, scale = backend.to_numpy(drawn(params, backend.asarray(eps)))
    free = np.isin(np.arange(problem.dim), noisy_of(problem))
    scale = np.where(free, scale, 1.0)
    ratio = np.where(free, psis.spread(weights, z) / scale, 1.0)
    ratio, optimum = np.where(ratio > _WIDER, ratio, 1.0), None
    if np.isfinite(weights).all():
        if (linear := response(weights, z[:, free])) is not None:
            sure = linear.ratio - _SURE * linear.ratio_se > _NARROW
            ratio[free] = np.maximum(ratio[free], np.where(sure, linear.ratio, 1.0))
        if guide.name in GUIDES.own:
            found = to_optimum(weights, z[:, free], mean[free], scale[free])
            optimum = Optimum(*np.full((len(found), len(free)), np.nan))
            for whole, part in zip(optimum, found, strict=True):
                whole[free] = part
    site, value = max(((name, float(ratio[where].max())) for name, where in problem.sites.items()), key=lambda p: p[1])
    return (site, value) if value > 1 else None, optimum


def _left(problem, optimum: Optimum | None, solver) -> str:
    """The largest error that the optimisation left, if it is large, in words."""
    if optimum is None:
        return ""
    for off, error, limit, words in (
        (optimum.sd, optimum.sd_se, _SD_OFF, "standard deviation of {} is {:.0%} {} that"),
        (optimum.mean, optimum.mean_se, _MEAN_OFF, "mean of {} is {:.2f} standard deviations {} that"),
    ):
        if not (sure := np.nan_to_num(np.abs(off) - _ERRORS * error, nan=-np.inf)).max() > limit:
            continue
        worst = int(sure.argmax())
        site = next(name for name, where in problem.sites.items() if where.start <= worst < where.stop)
        said = words.format(site, abs(off[worst]), "above" if off[worst] > 0 else "below")
        falls = solver.average or solver.schedule is not None or solver.own
        mended = ", or change step_size" if falls else ", leave average out, or let the step size fall"
        return (
            f"the fit has not converged: the {said} of {problem.guide.about.replace('a ', 'the best ', 1)} guide; "
            f"increase num_steps{mended}"
        )
    return ""


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
            "iterates fluctuate widely: first decay it (schedule) or reduce it; if k-hat stays high, "
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
