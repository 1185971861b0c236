"""Rows of tables that an experiment makes at some of its scales, as its settings tell."""

import math
from collections.abc import Mapping
from typing import Any

from lowvar_studies.jobs.common_spec import SCALES
from lowvar_studies.jobs.study import Job, Study
from lowvar_studies.reports.effect import Missing


def makes(study: Study, lacking: Missing) -> list[Job]:
    """The jobs of a study whose rows have the values that an effect wants of a table."""
    kinds = [one.rows_of for one in study.family.tables if one.name == lacking.table and one.when(study.experiment)]
    return [job for job in study.jobs(*kinds) if _has(job, lacking.wanted)] if kinds else []


def made_at(study: Study, lacking: Missing) -> dict[str, Study]:
    """The other scales at which the experiment makes a table or rows that it lacks; none if its own should have."""
    others = [] if makes(study, lacking) else [scale for scale in SCALES if scale != study.scale]
    studies = {scale: Study.load(study.path, scale) for scale in others}
    return {scale: one for scale, one in studies.items() if makes(one, lacking)}


def stated(job: Job, column: str) -> list[Any]:
    """The values of a table's column that a job's names and settings tell; none if they do not."""
    return [job.names[column]] if column in job.names else job.spec.stated(column)


def _has(job: Job, wanted: Mapping[str, Any]) -> bool:
    return all(_among(value, stated(job, column)) for column, value in wanted.items())


def _among(value: Any, values: list[Any]) -> bool:
    """Whether a value is one of those that settings state, or they state none."""
    if isinstance(value, float):
        return not values or any(math.isclose(value, float(one), rel_tol=1e-9) for one in values)
    return not values or value in values
