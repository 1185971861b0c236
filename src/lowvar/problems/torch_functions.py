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
    compiling = "torch._dynamo" in sys.modules and not torch.compiler.is_compiling()
    stance = getattr(torch.compiler, "set_stance", None) if compiling else None  # since PyTorch 2.6
    try:
        with stance("force_eager") if stance else contextlib.nullcontext():
            yield
    finally:
        Distribution.set_default_validate_args(validated)


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
