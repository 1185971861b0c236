"""Figures of integrals, in the order of a report."""

from lowvar.studies.declarations import Figure
from lowvar.studies.integral.figures.boxes import BOXES
from lowvar.studies.integral.figures.epochs import EPOCHS
from lowvar.studies.integral.figures.errors import ERRORS
from lowvar.studies.integral.figures.fits import FITS
from lowvar.studies.integral.figures.power_scores import POWER_SCORES
from lowvar.studies.integral.figures.predictive import PREDICTIVE
from lowvar.studies.integral.figures.seconds import SECONDS
from lowvar.studies.integral.figures.split import SPLIT
from lowvar.studies.integral.figures.stein_kernels import STEIN_KERNELS

FIGURES: tuple[Figure, ...] = (
    ERRORS, BOXES, SPLIT, FITS, STEIN_KERNELS, EPOCHS, POWER_SCORES, PREDICTIVE, SECONDS,
)  # fmt: skip
