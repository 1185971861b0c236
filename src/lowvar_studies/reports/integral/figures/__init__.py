"""Figures of integrals, in the order of a report."""

from lowvar_studies.reports.declarations import Figure
from lowvar_studies.reports.integral.figures.boxes import BOXES
from lowvar_studies.reports.integral.figures.epochs import EPOCHS
from lowvar_studies.reports.integral.figures.errors import ERRORS
from lowvar_studies.reports.integral.figures.fits import FITS
from lowvar_studies.reports.integral.figures.power_scores import POWER_SCORES
from lowvar_studies.reports.integral.figures.predictive import PREDICTIVE
from lowvar_studies.reports.integral.figures.seconds import SECONDS
from lowvar_studies.reports.integral.figures.split import SPLIT
from lowvar_studies.reports.integral.figures.stein_kernels import STEIN_KERNELS

FIGURES: tuple[Figure, ...] = (
    ERRORS, BOXES, SPLIT, FITS, STEIN_KERNELS, EPOCHS, POWER_SCORES, PREDICTIVE, SECONDS,
)  # fmt: skip
