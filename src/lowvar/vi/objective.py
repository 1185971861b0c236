"""The interface of estimators to a problem: a doubly stochastic objective, and an approximation with a known mean.

``f(w) = E_n E_eps f(w; n, eps)`` over data rows ``n`` and base noise ``eps ~ N(0, I)``. The approximation
``f~(w; n, eps)`` has ``E_eps grad f~`` in closed form: control variates combine the two
(Wang, Geffner and Domke, 2024, section 4 and Algorithm 3).

Parameters and gradients are dicts of vectors by block: ``{"mu", "log_sigma"}`` for mean-field variational
inference, ``{"w"}`` for a layer with dropout. Values of ``f~`` may lack blocks that it does not approximate.
``noise`` has ``index (B,)``, ``weight (B,)``, which sums to one, and ``eps (S, noise_dim)``, which the rows share.
"""

from collections.abc import Mapping
from typing import Any, Protocol

from lowvar.core.backend import Backend


class Objective(Protocol):
    """A doubly stochastic objective.

    Attributes:
        name: name in reports.
        backend: the array library.
        N: number of data rows.
        noise_dim: dimension of ``eps``.
        dtype: floating type of the data.
        blocks: the parameters' blocks and their lengths, in the order in which gradients are laid out.
        sites: the coordinates of each latent variable, ``{name: slice}``, see ``part``; may be empty.
    """

    @property
    def name(self) -> str:
        """See above."""
        ...

    @property
    def backend(self) -> Backend:
        """See above."""
        ...

    @property
    def N(self) -> int:
        """See above."""
        ...

    @property
    def noise_dim(self) -> int:
        """See above."""
        ...

    @property
    def dtype(self) -> Any:
        """See above."""
        ...

    @property
    def blocks(self) -> Mapping[str, int]:
        """See above."""
        ...

    @property
    def sites(self) -> Mapping[str, slice]:
        """See above."""
        ...

    def initial(self, kind: str, key) -> dict[str, Any]:
        """Starting parameters as NumPy arrays."""
        ...

    def objective_gradient(self, params, noise) -> dict[str, Any]:
        """``grad f(w; B, eps)``: the weighted mean over the batch's rows, and the mean over the particles."""
        ...

    def full_objective_gradient(self, params, eps) -> dict[str, Any]:
        """The same over all rows, for ``eps (S, noise_dim)``."""
        ...

    def objective_gradient_by_row(self, params, noise) -> dict[str, Any]:
        """The same over the batch, row ``n`` with its own parameters ``params[block][n]``."""
        ...

    def point(self, params) -> dict[str, Any]:
        """The part of ``w`` needed for ``grad f~(w; n, eps)``."""
        ...

    def first_order(self, params, eps, mean) -> dict[str, Any]:
        """The part of ``grad f~`` that is linear in ``eps``, averaged over it, in blocks that ``approximation`` lacks.

        ``mean`` is an ``approximation_mean`` at any fixed point; whatever it is, this part has mean zero.
        """
        ...

    def part(self, block: str, where: slice) -> slice:
        """The entries of a block that belong to ``where``, one of ``sites``."""
        ...

    def zero_mean(self, point) -> dict[str, Any]:
        """Zeros in the form of ``approximation_mean``."""
        ...

    def approximation(self, point, noise) -> tuple[dict[str, Any], dict[str, Any]]:
        """``E_xi grad f~(w; B, xi)``, and ``grad f~(w; B, eps)`` minus that, averaged over the particles."""
        ...

    def full_approximation(self, point, eps) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same over all rows, for ``eps (S, noise_dim)``."""
        ...

    def approximation_by_row(self, points, noise) -> tuple[dict[str, Any], dict[str, Any]]:
        """The same over the batch, row ``n`` with its own point ``points[key][n]``."""
        ...

    def approximation_mean(self, point, index, weight) -> dict[str, Any]:
        """``E_xi grad f~(w; B, xi)`` alone."""
        ...

    def approximation_mean_by_row(self, points, index, weight) -> dict[str, Any]:
        """The same, row ``n`` with its own point."""
        ...

    def full_approximation_mean(self, point) -> dict[str, Any]:
        """The same over all rows: a pass over the data."""
        ...
