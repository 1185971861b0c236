"""Figures of integrals, in the order of a report."""

from lowvar_studies.reports.declarations import Figure
from lowvar_studies.reports.integral.figures.boxes import BOXES
from lowvar_studies.reports.integral.figures.coverage import COVERAGE
from lowvar_studies.reports.integral.figures.errors import EPOCHS, ERRORS, SECONDS
from lowvar_studies.reports.integral.figures.illustrations import FITS, POWER_SCORES, PREDICTIVE, STEIN_KERNELS
from lowvar_studies.reports.integral.figures.split import SPLIT

FIGURES: tuple[Figure, ...] = (
    ERRORS, COVERAGE, BOXES, SPLIT, FITS, STEIN_KERNELS, EPOCHS, POWER_SCORES, PREDICTIVE, SECONDS,
)  # fmt: skip
