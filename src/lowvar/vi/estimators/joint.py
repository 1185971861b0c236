"""The joint control variate against subsampling and Monte Carlo noise together, in its SAGA form."""

from lowvar.errors import UserError
from lowvar.vi.estimators.base import Estimator, Properties, minus, plus
from lowvar.vi.estimators.saga import Terms, saga
from lowvar.vi.estimators.tables import table_of_vectors


def joint(problem, batches, table: str | None = None, naive_epochs: int = 1) -> Estimator:
    """``grad f(w; B, eps) + G - grad f~(w^n; n, eps)`` averaged over the batch.

    ``w^n`` are the parameters at which datum ``n`` was last visited and ``G = E_m E_xi grad f~(w^m; m, xi)``
    the running mean; in variational inference, where ``f~`` is for the ``mu`` part, that of ``grad k_m(mu^m)``.
    The variance has no floor: it vanishes as ``f~ -> f`` and ``w^n -> w``. Unlike Algorithm 1 as printed, ``G`` is
    initialised from the table's own gradients: with the printed start, the control variate has a nonzero mean.

    Args:
        problem: the objective.
        batches: how rows are drawn.
        table: what has a vector of parameters. ``"batches"``: each batch, ``2 ceil(N / B)`` vectors; a step needs one
            Hessian-vector product; the default for fixed batches. ``"snapshots"``: as many vectors, of which a batch
            reads one for each row; for batches that cover an epoch, the default for reshuffled ones. ``"rows"``: each
            row, ``N`` vectors.
        naive_epochs: epochs before the control is used, 1 or more (Algorithm 1, line 1); the paper uses 3 for
            PPCA with SGD. With iid batches there are none.

    Raises:
        UserError: an unknown table, one that the batches do not allow, or no naive epoch.

    References:
        Wang, Geffner and Domke, "Joint control variate for faster black-box variational inference", 2024,
        eq. 5 and Algorithm 1.
    """
    if naive_epochs < 1:
        raise UserError(f"joint: naive_epochs = {naive_epochs}; it must be 1 or more: a naive epoch fills the table")
    table, stored = table_of_vectors("joint", table, problem.backend, batches, by_batch=True)
    approximation = problem.approximation if table == "batches" else problem.approximation_by_row

    def terms(rows, params, noise, once_ready):
        old, deviation = approximation(rows, noise)
        point = problem.point(params)
        fresh = problem.approximation_mean(point, noise.index, noise.weight)
        gradient = minus(problem.objective_gradient(params, noise), once_ready(plus(old, deviation)))
        gradient = minus(gradient, problem.first_order(params, noise.eps, fresh))
        return Terms(gradient, minus(fresh, old), point, fresh)

    def change(rows, params, index, weight):
        fresh = problem.approximation_mean(problem.point(params), index, weight)
        return minus(fresh, problem.approximation_mean_by_row(rows, index, weight))

    def start(params):
        point = problem.point(params)
        return point, problem.zero_mean(point)

    properties = Properties(
        unbiased=True,
        gradients_without_noise=1,
        hvps=1,
        full_passes_at_start=0 if batches.covers else 1,
        table_rows=stored.rows,
        table_blocks=len(problem.blocks),
        needs_epochs=batches.covers,
    )
    return saga(
        "joint", problem, batches, stored, properties, terms=terms, change=change, start=start,
        full_mean=lambda params: problem.full_approximation_mean(problem.point(params)), naive_epochs=naive_epochs,
    )  # fmt: skip
