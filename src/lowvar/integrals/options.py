"""An integrator from its name and options, with one sentence for whatever is wrong with them."""

from collections.abc import Callable, Mapping
from typing import Any

from lowvar.errors import UserError, kind_of
from lowvar.integrals import INTEGRAL
from lowvar.integrals.base import Integrator
from lowvar.registry import label


def make(name: str | Callable[..., Integrator], options: Mapping[str, Any]) -> Integrator:
    """The integrator called ``name``.

    Args:
        name: one of ``lowvar.integrals.INTEGRAL``, ``module:function``, or a factory.
        options: keyword arguments of its factory.

    Raises:
        UserError: no integrator has that name, PyTorch is missing, or an option is unknown or out of range.
    """
    INTEGRAL.check_options(name, options)
    factory = INTEGRAL.get(name)
    try:
        integrator = factory(**options)
    except UserError:
        raise
    except (AttributeError, TypeError, ValueError, ArithmeticError) as error:
        raise UserError(f"{label(name)}: it cannot be made with the options {dict(options)}: {error}") from error
    if not isinstance(integrator, Integrator):
        raise UserError(f"{label(name)}: the factory returned {kind_of(integrator)}, not an Integrator")
    return integrator
