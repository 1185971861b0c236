"""A user's functions in PyTorch in a form that ``torch.func`` can transform and trace."""

import contextlib
import sys

import torch
from torch.distributions import Distribution


@contextlib.contextmanager
def traceable():
    """Switches off what cannot be traced: the checks of ``torch.distributions``, and ``torch.compile``."""
    validated = Distribution._validate_args
    Distribution.set_default_validate_args(False)
    with contextlib.ExitStack() as stack:
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
