"""The multilevel gradient with as many points as the variance of its differences asks for, estimated on the way."""

from lowvar.errors import UserError
from lowvar.estimators.gradient.base import Estimator
from lowvar.estimators.gradient.recursion import base_of, checked
from lowvar.estimators.gradient.schedules import rounded_up

_REVIEW = 25  # epochs between choices of the number of points
_RATE = 0.1  # of the running mean of the differences' variance
_LEAST = 2  # points, of which a variance can be estimated


def mlmc_optimal(problem, batches=None, points=None, base="naive") -> Estimator:
    """``mlmc`` with ``N_t = N_0 sqrt(V_t / V_0)``, which Theorem 1 has for the least total variance.

    The theorem takes all steps for equally dear; a difference costs two gradients and the first step one, for which
    the best ``N_t`` would be a factor of ``sqrt(2)`` smaller. ``V_t`` is the variance of independent points: under
    quasi-random or antithetic ones the mean of a step varies less than it says.

    ``V_0`` is the variance of the gradient at one point, at the start, and ``V_t`` that of the difference of two
    gradients, a running mean over steps of the variance between a step's points. ``N_t`` is chosen every 25 epochs,
    between 2 and ``N_0``, and rounded up to one of a few sizes, for each of which there is a program.

    Args:
        problem: an objective.
        batches: how rows are drawn; those of a step are the same for both gradients. What they add to the
            difference is common to its points, and no part of ``V_t``.
        points: ``N_0``; in experiments ``solver.samples``. Without it all steps take what the sampler draws.
        base: whose gradients are compared: ``"naive"`` or ``"stl"``. A control variate's product with the Hessian
            serves all points of a step at once, and here every point has its own.

    Raises:
        UserError: ``N_0`` below 1, or another base.

    References:
        Fujisawa and Sato, "Multilevel Monte Carlo variational inference", 2021, Theorem 1; the choice with known
        ``V_t`` is Giles's, "Multi-level Monte Carlo path simulation", 2008.
    """
    first, _ = checked("mlmc_optimal", points, None)
    if base == "cv":
        raise UserError("mlmc_optimal: base = 'cv' would need a Hessian-vector product for every point; use 'naive'")
    gradient = base_of(problem, batches, base)
    backend, xp = problem.backend, problem.backend.xp
    period = _REVIEW * (batches.steps if batches else 1)
    sizes = tuple(sorted({min(first or 1, max(_LEAST, rounded_up(n))) for n in range(1, (first or 1) + 1)}))

    def init(params):
        zero = xp.sum(xp.zeros_like(next(iter(params.values()))))
        start = backend.tree_map(xp.zeros_like, params)
        counts = {"step": zero, "points": zero + (first or 0), "taken": zero}
        return {"G": start, "params": params, "V_0": zero, "V": zero, **counts}

    def allocated(V, V_0):
        """The least size that is not below ``N_0 sqrt(V_t / V_0)``; the largest where nothing is known."""
        one = xp.ones_like(V)
        known = (V_0 > 0) & xp.isfinite(V_0) & xp.isfinite(V)
        wanted = sizes[-1] * xp.sqrt(xp.where(known, V, one) / xp.where(known, V_0, one))
        size = sizes[-1] * one
        for smaller in sizes[-2::-1]:
            size = xp.where(wanted <= smaller, smaller * one, size)
        return size

    def estimate(state, params, noise):
        dtype = state["step"].dtype
        later = xp.astype(state["step"] > 0, dtype)

        def change(eps):
            alone = noise._replace(eps=eps[None])
            now, before = gradient.of(params, alone), gradient.of(state["params"], alone)
            return backend.tree_map(lambda now, before: now - later * before, now, before)

        count = noise.eps.shape[0]
        changes = backend.vmap(change)(noise.eps)
        mean = backend.tree_map(lambda leaf: xp.mean(leaf, axis=0), changes)
        spread = sum(xp.sum((changes[block] - mean[block][None, :]) ** 2) for block in mean) / max(1, count - 1)
        G = backend.tree_map(lambda G, change: G + change, state["G"], mean)
        rate = xp.where(state["step"] > 1, _RATE * later, later)
        V, V_0 = state["V"] + rate * (spread - state["V"]), xp.where(state["step"] == 0, spread, state["V_0"])
        step = state["step"] + 1
        points = xp.where(step % period == 0, allocated(V, V_0), state["points"])
        counts = {"step": step, "points": points, "taken": state["taken"] + count}
        return G, {"G": G, "params": params, "V_0": V_0, "V": V, **counts}

    def chosen(epoch, state):
        return int(state["points"])

    varying = {} if first is None else {"points": chosen, "review": _REVIEW, "sizes": sizes}
    return Estimator("mlmc_optimal", problem, gradient.declared(1.0), init, estimate, **varying)
