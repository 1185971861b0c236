"""Algorithms 1 and 2 of the paper, its scalar control variates, and its control functional."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lowvar.errors import positive
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples, side_by_side
from lowvar.integrals.kernels import Kernel, Params
from lowvar.registry import declares
from lowvar_studies.integrators.columns import Columns, columns, numpy, tensor
from lowvar_studies.integrators.descent import DescentResult, RelationDescent, descend, generators, tune
from lowvar_studies.integrators.settings import (
    BOREHOLE_B,
    BOREHOLE_B_START,
    BOREHOLE_RATES,
    Descent,
    Tuning,
    check_batches,
    fewest,
    relation,
)

_CONDITION = 1e13  # above it rounding can show


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
    estimated = RelationDescent(B_rate, B_penalty, coasting, B_first)
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
    name: str, tuning: Tuning, descent: Descent, start: tuple[str, float | Sequence], estimated: RelationDescent | None
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


@declares(packages=("torch",), extra="torch")
def paper_cv(
    *,
    kernel: str = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    nu: float = 10.0,
    penalty: float = 1e-5,
    batch: int = 10,
    rate: float | Mapping[int, float] = BOREHOLE_RATES,
    decay: float = 0.99,
    epochs: int = 600,
    shuffle: bool = True,
    tuning_batch: int = 5,
    tuning_rate: float = 0.05,
    tuning_epochs: int = 20,
    tuning_constant: float = 1.0,
    joint: bool = False,
    record: int = 0,
) -> Integrator:
    """``g(x) = sum_j k0(x, x_j) theta_j``, with ``theta`` and ``beta`` by mini-batches: Algorithm 2 with ``B = 1``.

    What was learnt, ``info["lengthscale"] (R, T, d)`` and so on, has an axis of tasks.

    Args:
        kernel: as of ``paper_vv``, and so are the options that are not listed here.
        batch: points in a mini-batch. The paper gives a task alone as many as its vector-valued methods give all.
        joint: the same lengthscales for all tasks, tuned on all of them.

    Raises:
        UserError: a setting out of range, or, when it integrates, a batch larger than a task.

    References:
        Si, Oates, Duncan, Carin and Briol, "Scalable control variates for Monte Carlo methods via stochastic
        optimization", 2021; Sun, Barp and Briol, "CV" in Section 5 and Appendix E.
    """
    tuning = Tuning(kernel, kernel_options, nu, tuning_batch, tuning_rate, tuning_epochs, tuning_constant, joint)
    descent = Descent(penalty, batch, rate, decay, epochs, shuffle, record)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        results = []
        check_batches(samples, tuning)
        whole = tune(columns(samples), tuning, generators(seeds, 0)) if joint else None
        for t in range(samples.tasks):
            alone = samples.of_tasks([t])
            check_batches(alone, tuning, descent)
            data = columns(alone)
            params = tune(data, tuning, generators(seeds, 0)) if whole is None else whole
            ended = descend(data, tuning.chosen, params, np.eye(1), descent, None, generators(seeds, 1, t))
            results.append(integrals(data, tuning.chosen, params, ended))
        return _side_by_side(results)

    properties = IntegralProperties(
        transfers=joint and tuning_epochs > 0, exact_on="constants", random=True, fewest=fewest(tuning, descent)
    )
    return Integrator("paper_cv", properties, integrate)


@declares(packages=("torch",), extra="torch")
def paper_cf(
    *,
    kernel: str = "squared_exponential",
    kernel_options: Mapping[str, Any] | None = None,
    nu: float = 10.0,
    ridge: float = 1e-3,
    tuning_batch: int = 5,
    tuning_rate: float = 0.05,
    tuning_epochs: int = 20,
    tuning_constant: float = 1.0,
    joint: bool = True,
) -> Integrator:
    """``beta = (1' M^-1 y) / (1' M^-1 1)`` with ``M = k0(X, X) + ridge I``, each task alone.

    Table 2 has the ridge 1e-3, whatever ``lambda`` the other methods have, and the lengthscales of the vector-valued
    methods, tuned on all tasks.

    Args:
        kernel: as of ``paper_vv``, and so are the options that are not listed here.
        ridge: in the unit of the Stein kernel.
        joint: the same lengthscales for all tasks, tuned on all of them.

    Returns:
        An integrator. Its standard errors are those of generalised least squares, with the scale of the covariance
        estimated from the data.

    Raises:
        UserError: a setting out of range, or, when it integrates, a batch larger than a task.

    References:
        Oates, Girolami and Chopin, "Control functionals for Monte Carlo integration", 2017; Sun, Barp and Briol, "CF"
        in Section 5.
    """
    tuning = Tuning(kernel, kernel_options, nu, tuning_batch, tuning_rate, tuning_epochs, tuning_constant, joint)
    positive("ridge", ridge)

    def integrate(samples: Samples, seeds: np.ndarray) -> Integrals:
        check_batches(samples, tuning)
        whole = tune(columns(samples), tuning, generators(seeds, 0)) if joint else None
        results = []
        for t in range(samples.tasks):
            alone = samples.of_tasks([t])
            params = tune(columns(alone), tuning, generators(seeds, 0)) if whole is None else whole
            results.append(_closed_form(alone, tuning.chosen, params, ridge))
        return _side_by_side(results)

    tuned = tuning_epochs > 0
    properties = IntegralProperties(
        transfers=joint and tuned, exact_on="constants", random=tuned, fewest=fewest(tuning)
    )
    return Integrator("paper_cf", properties, integrate)


def _closed_form(samples: Samples, kernel: Kernel, params: Params, ridge: float) -> Integrals:
    """Generalised least squares for one task."""
    points, scores, y = (tensor(arrays[0]) for arrays in (samples.points, samples.scores, samples.values))
    m = y.shape[1]
    gram = kernel.stein(params, points, points, scores, scores)
    spectrum, vectors = torch.linalg.eigh(gram)
    spectrum = spectrum.clamp_min(0) + ridge
    ones, turned = vectors.sum(-2), (y[:, None] @ vectors)[:, 0]
    precision = (ones * ones / spectrum).sum(-1)
    beta = (ones * turned / spectrum).sum(-1) / precision
    rest = (turned - beta[:, None] * ones) / spectrum
    scale = (rest * rest * spectrum).sum(-1) / (m - 1)
    weights = (vectors @ rest[..., None])[..., 0]
    condition = numpy(spectrum[:, -1] / spectrum[:, 0])

    def fitted(task: int, x: np.ndarray, score: np.ndarray) -> np.ndarray:
        cross = kernel.stein(params, tensor(x), points, tensor(score), scores)
        return numpy((cross @ weights[..., None])[..., 0] + beta[:, None])

    return Integrals(
        value=numpy(beta)[:, None],
        standard_error=numpy((scale / precision).sqrt())[:, None],
        condition=condition,
        flags={"ill_conditioned": condition > _CONDITION},
        info=lengthscales(params, points.shape[2]),
        fitted=fitted,
    )


def integrals(data: Columns, kernel: Kernel, params: Params, ended: DescentResult) -> Integrals:
    """Estimates ``beta``; their errors and warnings from the residuals.

    The standard error is the root mean square of the residuals over ``sqrt(m_t)``: of the data that were fitted, and
    of coefficients that were stopped on their way, so it is a rough guide. At the optimum residuals have a mean of
    zero; where it is more than the standard error, the descent has ``not_converged``.
    """
    m = data.mask.sum(0)
    mean = ended.residuals.sum(1) / m
    error = (ended.residuals.square().sum(1) / m / m).sqrt()
    info = lengthscales(params, data.points.shape[2]) | {
        "steps": np.full(mean.shape[0], ended.steps),
        "B": numpy(ended.relation),
    }
    if ended.trace.shape[1]:
        info["trace_epochs"] = numpy(ended.trace)

    def fitted(task: int, points: np.ndarray, scores: np.ndarray) -> np.ndarray:
        gram = data.gram(kernel, params, tensor(points), tensor(scores))
        mixed = data.predict(gram, ended.theta) @ ended.relation[:, :, task, None]
        return numpy(mixed[..., 0] + ended.beta[:, task, None])

    return Integrals(
        value=numpy(ended.beta),
        standard_error=numpy(error),
        condition=np.full(mean.shape[0], np.nan),
        flags={"not_converged": numpy((mean.abs() > error).any(1))},
        info=info,
        fitted=fitted,
    )


def lengthscales(params: Params, dim: int) -> dict[str, np.ndarray]:
    """``lengthscale (R, d)``, if the kernel has any."""
    if "log_lengthscale" not in params:
        return {}
    log_lengthscale = params["log_lengthscale"]
    return {"lengthscale": numpy(log_lengthscale.exp().expand(log_lengthscale.shape[0], dim))}


def _side_by_side(results: list[Integrals]) -> Integrals:
    """One result of several tasks from results of one task each.

    What was learnt gets an axis of tasks, the second; ``trace_epochs`` stays that of the last task.
    """
    info = {name: np.stack([result.info[name] for result in results], 1) for name in results[0].info}
    info |= {name: value for name, value in results[-1].info.items() if name == "trace_epochs"}
    return replace(side_by_side(results), info=info)
