"""What the exact integrators share: what is to be learnt, and one fit."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import torch

from lowvar.errors import UserError
from lowvar.integrals.exact.fit_settings import FitSettings
from lowvar.integrals.exact.gls import Fit, solve
from lowvar.integrals.exact.hyper import NUGGET, Hyper
from lowvar.integrals.exact.learn import learn
from lowvar.integrals.exact.reml import at_once, shifted
from lowvar.integrals.exact.space import Space
from lowvar.integrals.stacked import Stacked, deviation


def space_of(data: Stacked, chosen: FitSettings, factor: torch.Tensor, learn_factor: bool) -> Space:
    """What is to be learnt; the factor of ``B``, ``(R, q, q)``, is given, or to start from.

    Raises:
        UserError: the kernel has no lengthscale, but one was given, or one of another length.
    """
    repetitions, dim = data.x.shape[0], data.x.shape[2]
    defaults = chosen.covariance.defaults(dim)
    parameters = {name: value.to(data.y).expand(repetitions, -1) for name, value in defaults.items()}
    learnt = tuple(parameters)
    if chosen.scales is not None:
        if "log_lengthscale" not in parameters or len(chosen.scales) not in (1, dim):
            raise UserError(f"lengthscale: give one, or {dim}, and only to a kernel that has a lengthscale")
        given = data.y.new_tensor(chosen.scales) / data.x_scale
        if parameters["log_lengthscale"].shape[1] < dim and len(chosen.scales) > 1:
            raise UserError("lengthscale: a kernel without ard takes one")
        parameters["log_lengthscale"] = given.log()  # one for each input: standardisation may tell them apart
        learnt = tuple(name for name in learnt if name != "log_lengthscale")
    own = chosen.given_nugget
    nugget = data.y.new_full((repetitions,), NUGGET[0] if own is None else own)
    spread = deviation(data.x).log().nan_to_num(neginf=0.0)
    return Space(Hyper(parameters, nugget, factor), learnt, own is None, learn_factor, spread)


def fit(data: Stacked, chosen: FitSettings, space: Space) -> tuple[Hyper, torch.Tensor, Any, Fit]:
    """Hyper-parameters, the mean diagonal of the kernel matrix ``(R,)``, the search's end, and the fit."""
    hyper, ended = learn(chosen.covariance, data, space, chosen.steps)
    levels, fits = [], []
    for which in torch.arange(data.repetitions, device=data.y.device).split(at_once(data)):
        here = data.pick(which)
        matrix, level = chosen.covariance.gram(here, hyper.pick(which))
        noise = (hyper.nugget[which] * level)[:, None] + here.ridge
        levels.append(level)
        fits.append(solve(shifted(matrix, noise), noise, here.y[:, :, 0], here.member, chosen.beta))
    return hyper, torch.cat(levels), ended, joined(fits)


def joined(fits: Sequence[Fit]) -> Fit:
    """Fits of some repetitions each as one."""
    return Fit(*(torch.cat([getattr(one, field.name) for one in fits]) for field in fields(Fit)))
