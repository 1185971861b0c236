"""The integrals of the house by name, for specs."""

import importlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from lowvar.datasets import Prepared
from lowvar.errors import UserError, unknown_name
from lowvar.problems.integrals.problem import IntegralProblem


@dataclass(frozen=True)
class Integral:
    """A row of the catalogue, known without building the problem.

    Attributes:
        module: with a factory of the problem's name; one that stands on data takes them first.
        dataset: that it stands on, prepared without scaling; None where it stands on none.
    """

    module: str
    dataset: str | None = None


PROBLEMS = MappingProxyType(
    {
        "south": Integral("lowvar.problems.integrals.analytic"),
        "step": Integral("lowvar.problems.integrals.analytic"),
        "borehole": Integral("lowvar.problems.integrals.borehole"),
        "van_der_pol": Integral("lowvar.problems.integrals.van_der_pol", "van_der_pol"),
        "lotka_volterra": Integral("lowvar.problems.integrals.lotka_volterra", "hudson_bay"),
    }
)


def dataset_of(problem: str, options: Mapping[str, Any] | None = None) -> str | None:
    """The dataset that a problem needs, to be prepared with scaling ``none``; None if it needs none.

    Args:
        problem: one of ``PROBLEMS``.
        options: of the problem: with simulated observations it needs no data.

    Raises:
        UserError: no problem has that name.

    >>> dataset_of("van_der_pol"), dataset_of("van_der_pol", {"observations": "simulated"}), dataset_of("step")
    ('van_der_pol', None, None)
    """
    simulated = (options or {}).get("observations") == "simulated"
    return None if simulated else _row(problem).dataset


def build(problem: str, data: Prepared | None = None, **options) -> IntegralProblem:
    """The catalogue's ``problem``.

    Args:
        problem: one of ``PROBLEMS``.
        data: its prepared dataset, see ``dataset_of``.
        options: of the problem, see its factory.

    Raises:
        UserError: no problem has that name, an option is unknown or out of range, or the data are not there.

    >>> build("south", variance=1.1).tasks
    ('f_1', 'f_2')
    """
    row = _row(problem)
    try:
        factory = getattr(importlib.import_module(row.module), problem)
    except ModuleNotFoundError as error:
        if error.name != "diffrax":
            raise
        raise UserError(f"{problem} needs diffrax: pip install 'lowvar[integrals]'") from error
    known = [name for name in inspect.signature(factory).parameters if name != "data"]
    for option in options:
        if option not in known:
            raise unknown_name("option", option, known, where=problem)
    return factory(data, **options) if row.dataset else factory(**options)


def _row(problem: str) -> Integral:
    if problem not in PROBLEMS:
        raise unknown_name("problem", problem, PROBLEMS)
    return PROBLEMS[problem]
