"""Points of integral problems: drawn for all repetitions at once, with their scores and values."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from lowvar.core.keys import named_key
from lowvar.errors import UserError
from lowvar.integrals.base import Samples
from lowvar_studies.integrals.gaussian import iid, published, rqmc
from lowvar_studies.integrals.nuts import nuts
from lowvar_studies.integrals.problem import IntegralProblem
from lowvar_studies.integrals.rowwise import on_host
from lowvar_studies.integrals.tempered import tempered

# (problem, sizes, keys) -> points of each task
SAMPLERS = {"iid": iid, "rqmc": rqmc, "nuts": nuts, "tempered": tempered, "published": published}
_MOST_CROSS = 8  # in several dimensions, scores of all targets are computed for at most this number of tasks


def draw(
    problem: IntegralProblem, sampler: str, sizes: Sequence[int], repetitions: int, seed: int, name: str
) -> Samples:
    """Points of every task and repetition, with scores and values.

    The key of repetition ``r`` is that of ``(seed, name, "points", r)`` for any number of repetitions, and the first
    points of a task do not depend on how many are drawn. Tasks with shared points, and tasks of the sampler
    ``tempered`` with the same target, have the same points; all others have their own.

    Args:
        problem: the integral problem.
        sampler: one of ``SAMPLERS`` that the problem lists.
        sizes: points of each task, ``(T,)``.
        repetitions: number of independent sets of points.
        seed: seed of the experiment.
        name: the problem's name in the experiment.

    Returns:
        ``Samples``, with the scores of all targets at every task's points if the targets differ and there are few
        tasks, or one dimension.

    Raises:
        UserError: a sampler or sizes that are unknown or unsuitable for this problem.
    """
    if sampler not in problem.samplers:
        raise UserError(
            f"{problem.name} cannot be drawn by {sampler!r}; its samplers are {', '.join(problem.samplers)}"
        )
    if len(sizes) != len(problem.tasks):
        raise UserError(f"{problem.name}: sizes has {len(sizes)} numbers, but there are {len(problem.tasks)} tasks")
    if min(sizes) < 1 or repetitions < 1:
        raise UserError(
            f"{problem.name}: sizes {list(sizes)}, repetitions {repetitions}; all of them must be at least 1"
        )
    if problem.shared and len(set(sizes)) > 1:
        raise UserError(f"{problem.name}: its tasks share their points, so sizes {list(sizes)} must all be equal")
    with on_host():
        keys = jnp.stack([named_key(seed, name, "points", r) for r in range(repetitions)])
        points = SAMPLERS[sampler](problem, tuple(sizes), keys)
    scores, values, cross = [], [], []
    targets = len(problem.log_densities)
    fill = targets > 1 and (len(problem.tasks) <= _MOST_CROSS or problem.dim == 1)
    computed: dict[tuple[int, int], tuple] = {}
    for t, array in enumerate(points):
        place = id(array), problem.target[t]
        if place not in computed:
            computed[place] = _scores(problem, problem.target[t], array, fill)
        values.append(problem.value(t, array.reshape(-1, problem.dim)).reshape(array.shape[:2]))
        scores.append(computed[place][0])
        cross.append(computed[place][1])
    return Samples(
        points=points,
        scores=tuple(scores),
        values=tuple(values),
        shared=problem.shared,
        cross_scores=tuple(cross) if fill else None,
        chain=sampler == "nuts",  # its points are successive states
    )


def _scores(problem: IntegralProblem, target: int, points: np.ndarray, fill: bool):
    """Scores of the task's own target ``(R, m, d)``, and of all tasks' targets ``(R, m, T, d)`` if ``fill``."""
    rows = points.reshape(-1, problem.dim)
    if not fill:
        return problem.score(target, rows).reshape(points.shape), None
    every = [problem.score(k, rows).reshape(points.shape) for k in range(len(problem.log_densities))]
    return every[target], np.stack([every[k] for k in problem.target], axis=2)
