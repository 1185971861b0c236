"""Figures of variational inference, in the order of a report."""

from lowvar.studies.declarations import Figure
from lowvar.studies.variational.figures.along import ALONG, SPLIT_ALONG
from lowvar.studies.variational.figures.convergence import CONVERGENCE, ITERATIONS, SECONDS, WORK
from lowvar.studies.variational.figures.cost import COST
from lowvar.studies.variational.figures.gradient_noise import POINTS, SNR, VARIANCE
from lowvar.studies.variational.figures.held_out import RATES, SIZES, TEST
from lowvar.studies.variational.figures.schemes import BY_SCHEME
from lowvar.studies.variational.figures.sensitivity import SENSITIVITY
from lowvar.studies.variational.figures.shares import SHARES
from lowvar.studies.variational.figures.steps import STEPS

FIGURES: tuple[Figure, ...] = (
    SHARES, ALONG, SPLIT_ALONG, CONVERGENCE, ITERATIONS, STEPS, BY_SCHEME, VARIANCE, SNR, POINTS, TEST, RATES, WORK,
    SIZES, SENSITIVITY, COST, SECONDS,
)  # fmt: skip
