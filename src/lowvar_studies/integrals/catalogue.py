"""Lowvar's integral problems by name, for specs."""

from collections.abc import Mapping
from typing import Any

from lowvar.registry import Registry, row
from lowvar_studies.datasets.load import Prepared
from lowvar_studies.integrals.problem import IntegralProblem

# factories of IntegralProblems; `dataset`: its dataset, prepared without scaling, the factory's first argument
PROBLEMS = Registry(
    "problem",
    {
        "south": "lowvar_studies.integrals.normal",
        "step": "lowvar_studies.integrals.normal",
        "borehole": "lowvar_studies.integrals.normal",
        "van_der_pol": row(
            "lowvar_studies.integrals.van_der_pol", dataset="van_der_pol", packages=("diffrax",), extra="integrals"
        ),
        "lotka_volterra": row(
            "lowvar_studies.integrals.lotka_volterra", dataset="hudson_bay", packages=("diffrax",), extra="integrals"
        ),
    },
    given=("data",),
    about={"dataset": None},
    group="lowvar.problems",
    accepts=lambda arguments: arguments[:1] not in (["arrays"], ["backend"]),
)


def dataset_of(problem: str, options: Mapping[str, Any] | None = None) -> str | None:
    """The dataset that a problem needs, prepared with scaling ``none``; None if it needs none.

    Args:
        problem: one of ``PROBLEMS``.
        options: options of the problem; with simulated observations it needs no data.

    Raises:
        UserError: no problem has that name.

    >>> dataset_of("van_der_pol"), dataset_of("van_der_pol", {"observations": "simulated"}), dataset_of("step")
    ('van_der_pol', None, None)
    """
    simulated = (options or {}).get("observations") == "simulated"
    return None if simulated else PROBLEMS.about(problem).dataset


def build(problem: str, data: Prepared | None = None, **options) -> IntegralProblem:
    """The catalogue's ``problem``.

    Args:
        problem: one of ``PROBLEMS``.
        data: its prepared dataset, see ``dataset_of``.
        options: options of the problem, see its factory.

    Raises:
        UserError: an unknown problem, an option that is unknown or out of range, or missing data.

    >>> build("south", variance=1.1).tasks
    ('f_1', 'f_2')
    """
    PROBLEMS.check_options(problem, options)
    factory = PROBLEMS.get(problem)
    return factory(data, **options) if PROBLEMS.about(problem).dataset else factory(**options)
