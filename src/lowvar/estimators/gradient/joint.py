"""The joint control variate against subsampling and Monte Carlo noise together, in its SAGA form."""

from lowvar.errors import UserError, unknown_name
from lowvar.estimators.gradient.base import Estimator, Properties, plus_mean_part, reparameterisation_gradient
from lowvar.estimators.gradient.tables import TABLES


def joint(problem, batches, table: str | None = None) -> Estimator:
    """``grad f(w; B, eps) + G - grad f~(w^n; n, eps)`` averaged over the batch, for the ``mu`` part.

    ``w^n`` are the parameters at which datum ``n`` was last visited and ``G = E_m E_xi grad f~(w^m; m, xi)``
    the running mean of ``grad k_m(mu^m)``. The variance has no floor: it vanishes as ``f~ -> f`` and
    ``w^n -> w``. Differences from Algorithm 1 as printed:

    * ``G`` is filled from the table's own gradients; with the printed start the control variate has a nonzero
      mean.
    * Where an epoch visits every row, ``G`` is recomputed at its end from the terms the epoch has produced
      anyway, which stops rounding from accumulating.

    With batches that cover an epoch the first epoch is naive and fills the table (Algorithm 1, line 1). With
    iid batches the table starts full, at the initial parameters, by one pass over the data.

    Args:
        problem: what to estimate for.
        batches: how rows are drawn.
        table: ``"snapshots"`` (``2 ceil(N / B)`` parameter vectors; needs batches that cover an epoch, and is
            the default for them) or ``"rows"`` (``N`` vectors).

    Raises:
        UserError: an unknown table, or one that the batches do not allow.

    References:
        Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024,
        eq. 11 and Algorithm 1.
    """
    table = table or ("snapshots" if batches.covers else "rows")
    if table not in TABLES:
        raise unknown_name("table", table, TABLES)
    if table == "snapshots" and not batches.covers:
        raise UserError(f"joint: table 'snapshots' needs reshuffled batches, not {batches.name!r}; use table='rows'")
    backend, xp, N = problem.backend, problem.backend.xp, problem.N
    stored = TABLES[table](backend, batches)

    def point(params):
        return {"mu": params["mu"], "sigma": xp.exp(params["log_sigma"])}

    def init(params):
        zero = xp.zeros_like(params["mu"])
        empty = xp.sum(zero)  # a scalar 0: epochs that the table has seen
        if batches.covers:
            return {"table": stored.init(point(params)), "G": zero, "G_next": zero, "epochs": empty}
        return {"table": stored.init(point(params)), "G": problem.full_gradient(params["mu"]), "epochs": empty + 1}

    def end_epoch(state, index):
        state = {**state, "table": stored.end_epoch(state["table"], index)}
        if batches.covers:
            state |= {
                "G": state["G_next"],
                "G_next": xp.zeros_like(state["G"]),
                "epochs": state["epochs"] + 1,
            }
        return state

    def estimate(state, params, noise):
        index, weight = noise.index, noise.weight
        rows = stored.read(state["table"], index)
        step = rows["sigma"] * xp.mean(noise.eps, axis=0)[None, :]
        old, curvature = problem.gradient_and_hvp_by_row(rows["mu"], step, index)
        control = state["G"] - weight @ (old + curvature)
        control = xp.where(state["epochs"] > 0, control, xp.zeros_like(control))
        gradient = plus_mean_part(reparameterisation_gradient(problem, params, noise), control)
        state = {**state, "table": stored.write(state["table"], noise, point(params))}
        if batches.covers:
            fresh, share = problem.gradient(params["mu"], index, weight), noise.rows / N
            state |= {
                "G": state["G"] + share * (fresh - weight @ old),
                "G_next": state["G_next"] + share * fresh,
            }
        else:
            state["G"] = state["G"] + _moved(problem, params, old, index)
        return gradient, state, made.oracles(noise)

    properties = Properties(
        unbiased=True,
        gradients_without_noise=1,
        hvps=1,
        full_passes_at_start=0 if batches.covers else 1,
        table_rows=stored.rows,
        needs_epochs=batches.covers,
    )
    made = Estimator("joint", problem, properties, init, estimate, end_epoch=end_epoch)
    return made


def _moved(problem, params, old, index):
    """The change of ``G`` when the rows of an iid batch move to ``params``: a row drawn twice counts once."""
    xp = problem.backend.xp
    same = index[:, None] == index[None, :]
    order = xp.cumulative_sum(xp.ones_like(index))
    repeat = xp.any(same & (order[None, :] < order[:, None]), axis=1)
    first = xp.astype(~repeat, old.dtype)
    weight = first / xp.sum(first)
    return xp.sum(first) / problem.N * (problem.gradient(params["mu"], index, weight) - weight @ old)
