"""Algorithms 1 and 2 of the paper: vector-valued control variates, the task relationship estimated or known."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lowvar.errors import positive
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator
from lowvar.integrals.samples import Samples
from lowvar.registry import declares
from lowvar_studies.integrators.data import columns
from lowvar_studies.integrators.descent_settings import (
    BOREHOLE_B,
    BOREHOLE_B_START,
    BOREHOLE_RATES,
    Descent,
    Tuning,
    check_batches,
    fewest,
)
from lowvar_studies.integrators.minibatches import generators
from lowvar_studies.integrators.option_checks import relation
from lowvar_studies.integrators.result import integrals
from lowvar_studies.integrators.sgd import Estimated, descend
from lowvar_studies.integrators.tuning import tune


@declares(packages=("torch",), extra="torch")
def paper_vv(
    *,
    kernel: str = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    nu: float = 10.0,
    penalty: float = 1e-5,
    batch: int = 5,
    rate: float | Mapping[int, float] = BOREHOLE_RATES,
    decay: float = 0.99,
    epochs: int = 600,
    shuffle: bool = True,
    tuning_batch: int = 5,
    tuning_rate: float = 0.05,
    tuning_epochs: int = 20,
    tuning_constant: float = 1.0,
    B_start: float | Sequence = BOREHOLE_B_START,
    B_rate: float | None = 2e-5,
    B_penalty: float = 1.0,
    coasting: bool = True,
    B_first: bool = False,
    record: int = 0,
) -> Integrator:
    """``g_t(x) = sum_s B_ts sum_j k0(x, x_j; l_t, l_s) theta_js``, with ``theta``, ``beta`` and ``B`` by mini-batches.

    Each step improves ``theta`` and ``beta``, and then ``B = L L'``, ``L`` lower triangular with an exponential on its
    diagonal, on the same batch. In the published code the block that is held has gradients of zero instead of none, so
    that Adam's momentum keeps moving it. Without this ``coasting`` the results of Table 2 do not come out. The other
    settings that the paper does not print are the defaults here: raw points, 600 epochs, rates times 0.99 after each.

    Points and values are used as they come. Of several targets it needs ``Samples.cross_scores``; without them the
    tasks are taken to have one target.

    Args:
        kernel: the base kernel.
        kernel_options: its options.
        nu: squared lengthscale that tuning starts from, or without tuning the one that is used.
        penalty: ``lambda`` of ``lambda |theta|^2``. Not the norm in the kernel's space: another estimator.
        batch: points of the largest task in a mini-batch, the others in proportion.
        rate: of Adam, a number or numbers by the mean number of points of the tasks.
        decay: of all rates, after every epoch.
        epochs: how many.
        shuffle: a new order of points in every epoch.
        tuning_batch: points of the smallest task in a mini-batch that lengthscales are tuned with.
        tuning_rate: of Adam, for ``log nu``.
        tuning_epochs: 0 for no tuning.
        tuning_constant: added to the Stein kernel there.
        B_start: a number for a multiple of the identity, ``[diagonal, off-diagonal]``, or rows.
        B_rate: of Adam for ``L``; None for ``rate``.
        B_penalty: of ``|B|^2``.
        coasting: see above.
        B_first: improve ``B`` before ``theta`` and ``beta``, as the published code does; Algorithm 1 has the reverse.
        record: epochs between estimates of the last task that are kept, ``info["trace_epochs"] (R, n)``; 0 for none.

    Raises:
        UserError: a setting out of range, or, when it integrates, a batch larger than a task.

    References:
        Sun, Barp and Briol, Algorithm 1, Sections 4 and 5, Appendices D and E.
    """
    tuning = Tuning(kernel, kernel_options, nu, tuning_batch, tuning_rate, tuning_epochs, tuning_constant)
    descent = Descent(penalty, batch, rate, decay, epochs, shuffle, record)
    relation("B_start", B_start)
    if B_rate is not None:
        positive("B_rate", B_rate)
    positive("B_penalty", B_penalty, or_zero=True)
    estimated = Estimated(B_rate, B_penalty, coasting, B_first)
    return _integrator("paper_vv", tuning, descent, ("B_start", B_start), estimated)


@declares(packages=("torch",), extra="torch")
def paper_vv_fixed(
    *,
    B: float | Sequence = BOREHOLE_B,
    kernel: str = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    nu: float = 10.0,
    penalty: float = 1e-5,
    batch: int = 5,
    rate: float | Mapping[int, float] = BOREHOLE_RATES,
    decay: float = 0.99,
    epochs: int = 600,
    shuffle: bool = True,
    tuning_batch: int = 5,
    tuning_rate: float = 0.05,
    tuning_epochs: int = 20,
    tuning_constant: float = 1.0,
    record: int = 0,
) -> Integrator:
    """``g_t(x) = sum_s B_ts sum_j k0(x, x_j; l_t, l_s) theta_js``, with ``theta`` and ``beta`` by mini-batches.

    Samples are taken as by ``paper_vv``. Where the points are shared, a step costs ``O(b m T + b T^2)``.

    Args:
        B: a number for a multiple of the identity, ``[diagonal, off-diagonal]``, or rows.
        kernel: as of ``paper_vv``, and so are the other options.

    Raises:
        UserError: a setting out of range, or, when it integrates, a batch larger than a task or a ``B`` of another
            shape.

    References:
        Sun, Barp and Briol, Algorithm 2 (Appendix A.2), Section 5, Appendices D and E.
    """
    tuning = Tuning(kernel, kernel_options, nu, tuning_batch, tuning_rate, tuning_epochs, tuning_constant)
    descent = Descent(penalty, batch, rate, decay, epochs, shuffle, record)
    relation("B", B)
    return _integrator("paper_vv_fixed", tuning, descent, ("B", B), None)


def _integrator(
    name: str, tuning: Tuning, descent: Descent, start: tuple[str, float | Sequence], estimated: Estimated | None
) -> Integrator:
    """Tune, descend, report: both algorithms; ``start`` is an option's name, and ``B`` or where it starts."""

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        check_batches(samples, tuning, descent)
        known = relation(*start, samples.tasks)
        data = columns(samples)
        params = tune(data, tuning, generators(seeds, 0))
        ended = descend(data, tuning.chosen, params, known, descent, estimated, generators(seeds, 1))
        return integrals(data, tuning.chosen, params, ended)

    properties = IntegralProperties(transfers=True, exact_on="constants", random=True, fewest=fewest(tuning, descent))
    return Integrator(name, properties, integrate)
