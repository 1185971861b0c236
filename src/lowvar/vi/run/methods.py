"""Estimators and solvers from the methods of specs, with their options checked before a run starts."""

import contextlib
import inspect
from dataclasses import replace

from lowvar.core.optimizers import optimizer
from lowvar.errors import UserError, kind_of
from lowvar.vi.descent import descend
from lowvar.vi.estimators import GRADIENT, OWN
from lowvar.vi.estimators.base import Estimator
from lowvar.vi.rows import amortised, rows_of


def make_solver(method, spec, problem, sampler):
    """``setting -> solver`` of a ``Method``: an estimator under an optimizer, or a solver of its own.

    Raises:
        UserError: no such method, or it does not take its options.
    """
    if method.factory in OWN:
        OWN.check_options(method.factory, method.options, where="solver")
        make = OWN.get(method.factory)
        _made("solver", method, make, problem, sampler, 1.0)  # checks options before the run starts
        return lambda setting: make(problem, sampler, _step_size(setting), **method.options)
    return descents(make_estimator(method, problem, sampler.batches, spec), spec, sampler)


def descents(estimator, spec, sampler):
    """``setting -> solver`` of an estimator under the optimizer of ``Settings``."""
    problem, plan = estimator.problem, spec.schedule
    step_size_at = spec.own.get("step_size_at")
    own = step_size_at and (lambda t, xp: step_size_at(xp.astype(t, xp.int32)))

    def at(setting):
        step_size, schedule = _step_size(setting), plan
        if plan is not None and isinstance(setting, dict):
            schedule = replace(plan, **{name: value for name, value in setting.items() if name != "step_size"})
        if spec.per_row and spec.optimizer == "sgd":
            step_size = step_size / problem.N
        name, eta_at = spec.own.get("transformation", spec.optimizer), own or (schedule and schedule.eta)
        moves = optimizer(name, step_size, problem.backend, eta_at, rows_of(problem), average=spec.average)
        return descend(estimator, sampler, moves)

    return at


def _step_size(setting):
    return setting["step_size"] if isinstance(setting, dict) else setting


def make_estimator(method, problem, batches, spec=None):
    """The estimator of a ``Method``; ``particles``, ``epochs`` and ``schedule`` default to the ``Settings``'.

    Raises:
        UserError: no such estimator, or it does not take the method's options.
    """
    if spec is not None:
        options = GRADIENT.options_of(method.factory)
        defaults = {"particles": spec.particles, "epochs": spec.epochs,
                    "schedule": spec.schedule}  # fmt: skip
        given = {name: value for name, value in defaults.items() if name in options} | dict(method.options)
        method = replace(method, options=given)
    backend = problem.backend.name
    GRADIENT.check_options(method.factory, method.options, where="estimator")
    factory = GRADIENT.get(method.factory)
    estimator = _made("estimator", method, factory, problem, batches)
    if not isinstance(estimator, Estimator):
        raise UserError(f"{method.estimator}: the factory returned {kind_of(estimator)}, not an Estimator")
    if backend not in estimator.properties.backends:
        known = ", ".join(estimator.properties.backends)
        raise UserError(f"estimator {method.estimator!r} does not run on {backend}: it supports {known}")
    if (accept := getattr(problem, "accept", None)) is not None:
        accept(estimator, batches)
    if rows_of(problem) is None:
        return estimator
    if not _fits(estimator, problem):
        kind = "amortised latent variables" if estimator.properties.local else "latent variables"
        raise UserError(
            f"estimator {method.estimator!r} takes no {kind} in the data plate, as {problem.name!r} has: use "
            f"{', '.join(taking(problem, batches))}, or an estimator of your own that declares Properties(local=True)"
            + (" and no table_rows" if estimator.properties.local else "")
        )
    return amortised(estimator, problem) if problem.whole.guide.amortised else estimator


def _fits(estimator, problem) -> bool:
    """Whether an estimator takes the latent variables that the rows of a problem have, if any."""
    declared, rows = estimator.properties, rows_of(problem)
    return rows is None or (declared.local and not (declared.table_rows and problem.whole.guide.amortised))


def taking(problem, batches, names=GRADIENT.own) -> list[str]:
    """The estimators that take the latent variables of a problem's rows, among ``names`` of lowvar's own."""
    found = []
    for name in names:
        with contextlib.suppress(UserError):
            if _fits(GRADIENT.get(name)(problem, batches), problem):
                found.append(name)
    return found


def _made(kind, method, factory, *args):
    try:
        return factory(*args, **method.options)
    except TypeError as error:
        if not method.options:
            try:
                inspect.signature(factory).bind(*args)
            except TypeError:
                raise UserError(
                    f"{kind} {method.estimator!r}: its factory must take (problem, batches): {error}"
                ) from error
            raise
        options = ", ".join(f"{key} = {value!r}" for key, value in method.options.items())
        raise UserError(f"options of {kind} {method.estimator!r}: {options}: {error}") from error
