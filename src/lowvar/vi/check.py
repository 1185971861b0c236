"""Whether a fit of a model can begin: finite densities, indices that are in range, and rows that do not interact.

The objective is a sum over rows, estimated from a batch. This requires that the log-likelihood of a row does not depend
on the other rows of its batch, nor the prior on the batch.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from lowvar.errors import UserError
from lowvar.vi.row_independence import Interaction, batches, interaction, some_rows
from lowvar.vi.starts import saddle_sites
from lowvar.vi.variational import prior_of

ELSEWHERE = "check that row and the likelihood's support, or start elsewhere: init"


class Check:
    """The checks of a problem before its fit. Those of a library's models add its own, and the words of their hints.

    Attributes:
        index: how an index can be wrong without an error in this library, and which entry it takes.
        where: the library's function that replaces entries.
    """

    index = ""
    where = ""

    def __call__(self, problem, centre: np.ndarray, near: Iterable[str]) -> list[str]:
        """Rejects a model that does not permit mini-batches, or whose density is not finite at the start.

        Args:
            problem: the model as a problem.
            centre: the start without its random part, ``(dim,)``.
            near: the sites that have one.

        Returns:
            The sites of which the centre is a saddle point, see ``saddle_sites``.

        Raises:
            UserError: see ``from_numpyro`` and ``TorchModel.problem``.
        """
        z = start_of(problem)
        self.runs(problem, z)
        self.density(problem)
        self.indices(problem, z)
        return self.rows(problem, z, centre, near)

    def runs(self, problem, z) -> None:
        """Checks that the model runs on a batch, and draws no random numbers of its own."""
        raise NotImplementedError

    def density(self, problem) -> None:
        """Checks that the density is finite at the start for every row."""
        z = start_of(problem)
        prior = float(problem.compiled(prior_of)(z))
        if not np.isfinite(prior):
            raise UserError(
                f"{problem.name}: the log prior is {prior} at the start; check the priors' parameters, or start "
                "elsewhere: init"
            )
        values = np.ravel(problem.backend.to_numpy(problem.log_likelihoods(z)))
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            whole = bad.size == values.size
            raise self.not_finite(problem, z, _row_at(problem, bad[0]), float(values[bad[0]]), whole)

    def not_finite(self, problem, z, row: int, value: float, whole: bool) -> UserError:
        """The refusal of a row whose log-likelihood is not finite; ``whole``: nor is that of any other."""
        return UserError(f"{problem.name}: the log-likelihood of row {row} is {value} at the start; {ELSEWHERE}")

    def indices(self, problem, z) -> None:
        """Checks that no row reads an array beyond its ends, where the library would take another entry."""
        if (values := self.strict(problem, z)) is None:
            return
        bad = np.flatnonzero(~np.isfinite(values))
        if bad.size:
            raise UserError(
                f"{problem.name}: the log-likelihood{self.row_of(problem, _row_at(problem, bad[0]))} reads an array at "
                f"an index that is {self.index}; number groups from 0, give a missing category (-1 in pandas) a number "
                f"of its own, and replace by {self.where} what a first or last row lacks"
            )

    def strict(self, problem, z) -> np.ndarray | None:
        """The log-likelihoods of all rows with NaN for such entries, in the order of ``chunks``; None without any."""
        raise NotImplementedError

    def row_of(self, problem, row: int) -> str:
        """Words that name a row."""
        return f" of row {row}"

    def rows(self, problem, z, centre: np.ndarray, near: Iterable[str]) -> list[str]:
        """Checks that rows do not interact; returns the sites at a saddle point."""
        raise NotImplementedError


def start_of(problem):
    """The means of all coordinates at the start, ``(dim,)``: an amortised guide computes those of the rows."""
    start = {block: problem.backend.asarray(np.asarray(of, problem.dtype)) for block, of in problem.start.items()}
    return problem.guide.point(start)["mu"] if problem.guide.amortised else start["mu"]


def _row_at(problem, place) -> int:
    return int(np.ravel(problem.backend.to_numpy(problem.chunks["index"]))[place])


def examined(
    problem, evaluate: Callable[..., Any], columns: Mapping[str, Any], start: np.ndarray,
    told: Callable[[Interaction], str], centre: np.ndarray, near: Iterable[str],
) -> list[str]:  # fmt: skip
    """Checks that rows do not interact; returns the sites at a saddle point.

    Args:
        problem: the model as a problem.
        evaluate: see ``interaction``.
        columns: see ``batches``.
        start: the point, ``(dim,)``.
        told: the words on rows that interact.
        centre: the start without its random part, ``(dim,)``.
        near: the sites that have one.
    """
    found = batches(problem.N, problem.dim, columns)
    if (meeting := interaction(evaluate, found, start)) is not None:
        raise UserError(f"{problem.name}: {told(meeting)}")
    some = some_rows(problem.N)
    rows = np.append(some, found[1][len(some) :]).astype(found[1].dtype)
    return saddle_sites(lambda z: evaluate(z, rows, False)[0][0][: len(some)], problem.sites, centre, near)
