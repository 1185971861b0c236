"""The multilevel gradient with numbers of particles from the variance of its differences, estimated during the run."""

from lowvar.errors import UserError
from lowvar.vi.estimators.base import Estimator, rounded_up
from lowvar.vi.estimators.recursion import base_of, checked_schedule, differences

_REVIEW = 25  # epochs between updates of the number of particles
_RATE = 0.1  # of the running mean of the differences' variance
_LEAST = 2  # particles, the minimum for a variance estimate


def mlmc_adaptive(problem, batches=None, particles=None, base="naive") -> Estimator:
    """``mlmc`` with ``N_t = N_0 sqrt(V_t / (2 V_0))``: the proportions of Theorem 1, from variances measured online.

    The theorem fixes the cost of the whole run, hence ``N_0`` depends on the ``V_t`` of all later steps
    (``mlmc_optimal``). Here ``N_0`` is given, and the cost is what results. The factor 2 is the theorem's: a difference
    costs two gradients, the first step one.

    ``V_0`` is the variance of the gradient with one particle, at the start. ``V_t`` is that of the difference of two
    gradients: a running mean over steps of the variance between a step's particles. Both assume independent
    particles; the mean of quasi-random or antithetic ones varies less. ``N_t`` is updated every 25 epochs, between 2
    and ``N_0``, and rounded up to one of a few sizes, each with its own compiled program. So the steps before the first
    update all take ``N_0``, and the mean lags behind a fast fall of ``V_t``: more particles than the theorem gives.

    Args:
        problem: an objective.
        batches: how rows are drawn; those of a step are the same for both gradients. Their
            contribution is common to all particles of a difference, and not part of ``V_t``.
        particles: ``N_0``; in experiments ``solver.particles``. Without it, all steps use the sampler's number.
        base: the estimator whose gradients are differenced: ``"naive"`` or ``"stl"``. Not ``"cv"``: its single
            Hessian-vector product serves all particles of a step, but here every particle would need its own.

    Raises:
        UserError: ``N_0`` below 1, or another base.

    References:
        Fujisawa and Sato, "Multilevel Monte Carlo variational inference", 2021, Theorem 1; the choice with known
        ``V_t`` is Giles's, "Multi-level Monte Carlo path simulation", 2008.
    """
    first, _ = checked_schedule("mlmc_adaptive", particles, None)
    if base == "cv":
        raise UserError("mlmc_adaptive: base = 'cv' would need a Hessian-vector product for every point; use 'naive'")
    gradient = base_of(problem, batches, base)
    backend, xp = problem.backend, problem.backend.xp
    period = _REVIEW * (batches.steps if batches else 1)
    sizes = tuple(sorted({min(first or 1, max(_LEAST, rounded_up(n))) for n in range(1, (first or 1) + 1)}))

    def init(params):
        zero = xp.sum(xp.zeros_like(next(iter(params.values()))))
        start = backend.tree_map(xp.zeros_like, params)
        counts = {"step": zero, "particles": zero + (first or 0), "taken": zero}
        return {"G": start, "params": params, "V_0": zero, "V": zero, "spread": zero, **counts}

    def allocated(V, V_0):
        """The smallest size of at least ``N_0 sqrt(V_t / (2 V_0))``; the largest if there is no estimate yet."""
        one = xp.ones_like(V)
        known = (V_0 > 0) & xp.isfinite(V_0) & xp.isfinite(V)
        wanted = sizes[-1] * xp.sqrt(xp.where(known, V, 2 * one) / xp.where(known, 2 * V_0, 2 * one))
        size = sizes[-1] * one
        for smaller in sizes[-2::-1]:
            size = xp.where(wanted <= smaller, smaller * one, size)
        return size

    def estimate(state, params, noise):
        dtype = state["step"].dtype
        later = xp.astype(state["step"] > 0, dtype)
        mean, spread = differences(gradient, state["params"], params, noise, later)
        G = backend.tree_map(lambda G, change: G + change, state["G"], mean)
        rate = xp.where(state["step"] > 1, _RATE * later, later)
        V, V_0 = state["V"] + rate * (spread - state["V"]), xp.where(state["step"] == 0, spread, state["V_0"])
        step = state["step"] + 1
        particles = xp.where(step % period == 0, allocated(V, V_0), state["particles"])
        counts = {"step": step, "particles": particles, "taken": state["taken"] + noise.eps.shape[0]}
        return G, {"G": G, "params": params, "V_0": V_0, "V": V, "spread": spread, **counts}

    def chosen(epoch, state):
        return int(state["particles"])

    varying = {} if first is None else {"particles": chosen, "review": _REVIEW, "sizes": sizes}
    spared = gradient.spared(batches, first)
    return Estimator("mlmc_adaptive", problem, gradient.declared(1.0), init, estimate, spared=spared, **varying)
