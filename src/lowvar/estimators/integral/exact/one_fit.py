"""What the exact integrators have in common: their options, one fit, and what it says."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch

from lowvar.errors import UserError
from lowvar.estimators.integral.exact.gls import Fit, solve
from lowvar.estimators.integral.exact.hyper import NUGGET, Hyper
from lowvar.estimators.integral.exact.learn import learn
from lowvar.estimators.integral.exact.reml import Covariance, at_once, shifted
from lowvar.estimators.integral.exact.space import Space
from lowvar.estimators.integral.kernels import KERNELS, Kernel, kernel
from lowvar.estimators.integral.option_checks import positive, whole
from lowvar.estimators.integral.stacked import Stacked, deviation


@dataclass(frozen=True)
class Settings:
    """Options of an exact integrator, checked.

    Attributes:
        covariance: kernel and operator.
        lengthscale: in the unit of the points, one or one for each input; None is learnt.
        nugget: relative to the mean diagonal; None is learnt.
        standardise: the points too.
        rule: ``gls`` or ``mean``.
        steps: evaluations of the restricted likelihood at most.
        gigabytes: of memory at most.
    """

    covariance: Covariance
    lengthscale: tuple[float, ...] | None
    nugget: float | None
    standardise: bool
    rule: str
    steps: int
    gigabytes: float


def settings(
    kernel_name: str | Kernel,
    kernel_options: Mapping[str, Any] | None,
    ard: bool,
    lengthscale: float | Sequence[float] | None,
    nugget: float | None,
    standardise: bool,
    beta: str,
    operator: int,
    trend: bool | None,
    steps: int,
    max_gigabytes: float,
) -> Settings:
    """Checked options.

    Raises:
        UserError: one of them is unknown or out of range.
    """
    if beta not in ("gls", "mean"):
        raise UserError(f"beta {beta!r}: it must be 'gls' or 'mean'")
    if operator not in (1, 2):
        raise UserError(f"operator {operator}: it must be 1 or 2, the order of the Langevin Stein operator")
    if nugget is not None:
        positive("nugget", nugget, or_zero=True)
    whole("steps", steps, 1)
    positive("max_gigabytes", max_gigabytes)
    try:
        scales = None if lengthscale is None else tuple(map(float, np.atleast_1d(np.asarray(lengthscale))))
    except (TypeError, ValueError) as error:
        raise UserError(f"lengthscale {lengthscale!r}: it must be a number, or one for each input") from error
    if scales is not None and not all(0 < one < math.inf for one in scales):
        raise UserError(f"lengthscale {lengthscale}: it must be positive, or None to learn it")
    if isinstance(kernel_name, str):
        options = dict(kernel_options or {})
        if kernel_name in KERNELS and "ard" in KERNELS.options_of(kernel_name):
            options.setdefault("ard", ard)
        kernel_name = kernel(kernel_name, **options)
    if not isinstance(kernel_name, Kernel):
        raise UserError(f"kernel {kernel_name!r}: it must be one of {', '.join(KERNELS)}")
    covariance = Covariance(kernel_name, operator, scales is None if trend is None else trend)
    return Settings(covariance, scales, nugget, standardise, beta, steps, max_gigabytes)


def exact_on(chosen: Settings) -> str:
    """See ``IntegralProperties``: where the kernel is learnt, its span is not known beforehand."""
    known = chosen.lengthscale is not None and not chosen.covariance.trend
    return "span" if known and chosen.nugget is not None and chosen.nugget <= 1e-8 else "constants"


def space_of(data: Stacked, chosen: Settings, factor: torch.Tensor, learn_factor: bool) -> Space:
    """What is to be learnt.

    Args:
        data: samples.
        chosen: options.
        factor: of ``B``, ``(R, q, q)``: given, or to start from.
        learn_factor: whether ``B`` is learnt.

    Raises:
        UserError: the kernel has no lengthscale, but one was given, or one of another length.
    """
    repetitions, dim = data.x.shape[0], data.x.shape[2]
    defaults = chosen.covariance.defaults(dim)
    parameters = {name: value.to(data.y).expand(repetitions, -1) for name, value in defaults.items()}
    learnt = tuple(parameters)
    if chosen.lengthscale is not None:
        if "log_lengthscale" not in parameters or len(chosen.lengthscale) not in (1, dim):
            raise UserError(f"lengthscale: give one, or {dim}, and only to a kernel that has a lengthscale")
        given = data.y.new_tensor(chosen.lengthscale) / data.x_scale
        if parameters["log_lengthscale"].shape[1] < dim and len(chosen.lengthscale) > 1:
            raise UserError("lengthscale: a kernel without ard takes one")
        parameters["log_lengthscale"] = given.log()  # one for each input: standardisation may tell them apart
        learnt = tuple(name for name in learnt if name != "log_lengthscale")
    nugget = data.y.new_full((repetitions,), NUGGET[0] if chosen.nugget is None else chosen.nugget)
    spread = deviation(data.x).log().nan_to_num(neginf=0.0)
    return Space(Hyper(parameters, nugget, factor), learnt, chosen.nugget is None, learn_factor, spread)


def fit(data: Stacked, chosen: Settings, space: Space) -> tuple[Hyper, torch.Tensor, Any, Fit]:
    """Hyper-parameters, the mean diagonal of the kernel matrix ``(R,)``, the search's end, and the fit."""
    hyper, ended = learn(chosen.covariance, data, space, chosen.steps)
    levels, fits = [], []
    for which in torch.arange(data.repetitions, device=data.y.device).split(at_once(data)):
        here = data.pick(which)
        matrix, level = chosen.covariance.gram(here, hyper.pick(which))
        shift = hyper.nugget[which] * level
        levels.append(level)
        fits.append(solve(shifted(matrix, shift), shift[:, None], here.y[:, :, 0], here.member, chosen.rule))
    return hyper, torch.cat(levels), ended, joined(fits)


def joined(fits: Sequence[Fit]) -> Fit:
    """Fits of some repetitions each as one."""
    return Fit(*(torch.cat([getattr(one, field.name) for one in fits]) for field in fields(Fit)))
