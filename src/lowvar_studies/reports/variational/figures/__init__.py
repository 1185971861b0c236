"""Figures of variational inference, in the order of a report."""

from lowvar_studies.reports.declarations import Figure
from lowvar_studies.reports.variational.figures.convergence import CONVERGENCE, ITERATIONS, SECONDS, STEPS, WORK
from lowvar_studies.reports.variational.figures.decomposition import ALONG, BY_SCHEME, SHARES, SPLIT_ALONG
from lowvar_studies.reports.variational.figures.gradient_noise import POINTS, SNR, VARIANCE
from lowvar_studies.reports.variational.figures.held_out import RATES, SIZES, TEST
from lowvar_studies.reports.variational.figures.sensitivity import SENSITIVITY
from lowvar_studies.reports.variational.figures.times import COST

FIGURES: tuple[Figure, ...] = (
    SHARES, ALONG, SPLIT_ALONG, ITERATIONS, CONVERGENCE, STEPS, BY_SCHEME, VARIANCE, SNR, POINTS, TEST, RATES, WORK,
    SIZES, SENSITIVITY, COST, SECONDS,
)  # fmt: skip
