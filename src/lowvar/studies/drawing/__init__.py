"""What the figures of all families share: their look, their panels and lines, the choice of rows, and files."""

from importlib import import_module

from lowvar.studies.base import Figure


def declared(family: str) -> dict[str, Figure]:
    """The figures of a family by name, in the order of a report."""
    return {one.name: one for one in import_module(f"lowvar.studies.{family}.figures").FIGURES}
