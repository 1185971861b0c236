"""A user's functions in PyTorch in a form that ``torch.func`` transforms, and those of a module with priors."""

import contextlib
import sys
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch.distributions import Distribution

from lowvar.errors import UserError, check_known

_SETTINGS = threading.RLock()


@contextlib.contextmanager
def traceable():
    """Switches off what cannot be traced: the checks of ``torch.distributions``, and ``torch.compile``.

    These settings are the process's: other threads wait, else one would restore what another has switched off.
    """
    with _SETTINGS, contextlib.ExitStack() as stack:
        validated = Distribution._validate_args
        Distribution.set_default_validate_args(False)
        stack.callback(Distribution.set_default_validate_args, validated)
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch._dynamo.config.patch(error_on_nested_fx_trace=False))
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def plain(function):
    """The function or module that ``torch.compile`` was given: what it returns cannot be traced again."""
    for name in ("_torchdynamo_orig_callable", "_orig_mod"):
        function = getattr(function, name, function)
    return function


def functions_of(model):
    """``log_likelihood(z, index (B,) of any integers) -> (B,)`` and ``log_prior(z)`` of a ``TorchModel``."""
    likelihood, prior = plain(model.log_likelihood), plain(model.log_prior)

    def log_likelihood(z, index):
        with traceable():
            return likelihood(z, index.to(torch.int64))

    def log_prior(z):
        with traceable():
            return prior(z)

    return log_likelihood, log_prior


_LOG_2PI = 1.8378770664093453


def from_module(cls, module, inputs, log_likelihood, prior_scale: Any, name: str | None):
    """See ``TorchModel.from_module``."""
    module = plain(module)
    if not isinstance(module, torch.nn.Module):
        raise UserError(f"from_module: give a torch.nn.Module, not {type(module).__name__}")
    name = name or type(module).__name__
    latent = {key: value for key, value in module.named_parameters() if value.requires_grad}
    if not latent:
        raise UserError(f"{name}: the module has no parameter with requires_grad")
    inputs = inputs if isinstance(inputs, tuple) else (inputs,)
    for one in inputs:
        if not (isinstance(one, torch.Tensor) and one.ndim):
            raise UserError(
                f"{name}: inputs must be a tensor whose first axis is the rows, or a tuple of such tensors, not "
                f"{type(one).__name__}"
            )
    N = len(inputs[0]) if inputs else 0
    if not N or any(len(one) != N for one in inputs):
        raise UserError(f"{name}: inputs have {[len(one) for one in inputs]} rows; give the same number, 1 or more")
    shapes = {key: tuple(value.shape) for key, value in latent.items()}
    sizes = [value.numel() for value in latent.values()]
    with torch.no_grad():
        mean = torch.cat([value.detach().reshape(-1).clone() for value in latent.values()])
        scale = torch.cat([one.reshape(-1) for one in _scales(name, latent, prior_scale)]).to(mean)
    constant = -torch.log(scale).sum() - 0.5 * _LOG_2PI * len(mean)

    def likelihood(z, index):
        parts = zip(shapes.items(), torch.split(z, sizes), strict=True)
        values = {key: part.reshape(shape) for (key, shape), part in parts}
        outputs = torch.func.functional_call(module, values, tuple(one[index] for one in inputs))
        return log_likelihood(outputs, index)

    def log_prior(z):
        return -0.5 * ((z / scale) ** 2).sum() + constant

    if not callable(log_likelihood):
        raise UserError(f"{name}: log_likelihood must be a function, not {type(log_likelihood).__name__}")
    return cls(likelihood, log_prior, N, len(mean), name, mean.dtype, shapes, mean=mean)


def _scales(name, latent, given):
    """The prior standard deviations of all parameters, in their shapes."""
    if isinstance(given, Mapping):
        for key in given:
            check_known("parameter", key, latent, where=f"{name}: prior_scale")
        if missing := [key for key in latent if key not in given]:
            raise UserError(f"{name}: prior_scale has no entry for the parameter {missing[0]!r}")
    for key, value in latent.items():
        one = given[key] if isinstance(given, Mapping) else given
        try:
            tensor = torch.as_tensor(one, dtype=torch.float64).expand(value.shape)
        except (TypeError, ValueError, RuntimeError) as error:
            raise UserError(f"{name}: prior_scale of {key!r}: {one!r} is not a standard deviation: {error}") from error
        if not (torch.isfinite(tensor).all() and (tensor > 0).all()):
            raise UserError(f"{name}: prior_scale of {key!r}: {one!r}: it must be positive")
        yield tensor
