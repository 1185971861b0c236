"""Figures of variational inference, in the order of a report."""

from lowvar_studies.reports.declarations import Figure
from lowvar_studies.reports.variational.figures.along import ALONG, SPLIT_ALONG
from lowvar_studies.reports.variational.figures.convergence import CONVERGENCE, ITERATIONS, SECONDS, WORK
from lowvar_studies.reports.variational.figures.cost import COST
from lowvar_studies.reports.variational.figures.gradient_noise import POINTS, SNR, VARIANCE
from lowvar_studies.reports.variational.figures.held_out import RATES, SIZES, TEST
from lowvar_studies.reports.variational.figures.schemes import BY_SCHEME
from lowvar_studies.reports.variational.figures.sensitivity import SENSITIVITY
from lowvar_studies.reports.variational.figures.shares import SHARES
from lowvar_studies.reports.variational.figures.steps import STEPS

FIGURES: tuple[Figure, ...] = (
    SHARES, ALONG, SPLIT_ALONG, CONVERGENCE, ITERATIONS, STEPS, BY_SCHEME, VARIANCE, SNR, POINTS, TEST, RATES, WORK,
    SIZES, SENSITIVITY, COST, SECONDS,
)  # fmt: skip
