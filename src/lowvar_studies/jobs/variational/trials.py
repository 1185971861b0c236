"""Tuning by the tree-structured Parzen estimator: trial runs one after another, each proposed from those before.

A proposal depends only on the table of earlier trials and on its own seed, so a resumed search makes the same trials
as an uninterrupted one.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lowvar.core import artifact, loop
from lowvar.core.files import sweep
from lowvar.core.keys import named_key
from lowvar.errors import UserError

_SECONDS = ("seconds", "compile_seconds")


def search(job, engine: Callable, *, checkpoint: Path, mark, progress=None, every: float = 10.0):
    """All trials of a study.

    Args:
        job: a ``TuneJob``.
        engine: ``engine(spec)`` of a run's spec.
        checkpoint: file of the finished trials, written after each; ``checkpoint.trial.npz`` beside it has the state of
            the running trial. The search resumes from a checkpoint that carries ``mark``.
        mark: the artifact stamp that ties a checkpoint to its spec and data.
        progress: called with the number of trials just done.
        every: minimum time between checkpoints within a trial, seconds.

    Returns:
        A table with a row per trial: ``number`` from 0, the tuned settings, ``value`` (mean over repetitions of
        the final ELBO, nats; minus infinity if one is not finite) and ``status``; and a table of seconds.

    Raises:
        UserError: optuna is not installed.
    """
    import pandas as pd

    _optuna()
    names = list(job.ranges.lowest())
    within = checkpoint.with_name(f"{checkpoint.stem}.trial.npz")
    sweep(checkpoint.parent, checkpoint.name)
    rows = _resume(checkpoint, mark, [*names, "value", *_SECONDS])
    if progress and rows:
        progress(len(rows))
    while len(rows) < job.trials:
        spec = job.trial(choice := propose(job, rows))
        alone = {**mark, "spec": spec.hash}
        result = loop.complete(engine(spec), checkpoint=within, mark=alone, every=every)
        spent = result.timing.iloc[-1]
        rows.append({**choice, "value": value(result.trace), **{name: float(spent[name]) for name in _SECONDS}})
        stacked = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        artifact.write_arrays(checkpoint, stacked, mark)
        within.unlink(missing_ok=True)
        if progress:
            progress(1)
    table = pd.DataFrame(rows)
    table.insert(0, "number", np.arange(len(table)))
    table["status"] = np.where(np.isfinite(table["value"]), "ok", "diverged")
    return table[["number", *names, "value", "status"]], table[["number", *_SECONDS]]


def propose(job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The settings of the next trial, by the tree-structured Parzen estimator; the first ten are random.

    The seed derives from problem and trial, not from the method: methods begin with the same draws.

    Args:
        job: a ``TuneJob``.
        rows: settings and ``value`` of the finished trials.

    References:
        Bergstra, Bardenet, Bengio and Kegl (2011), Algorithms for hyper-parameter optimization, section 4; as in
        optuna, with its default settings.
    """
    optuna = _optuna()
    ranges = _distributions(optuna, job.ranges)
    key = named_key(job.seed, job.name, "tuning", "trial", len(rows))
    sampler = optuna.samplers.TPESampler(seed=int(np.asarray(jax.random.key_data(key))[0]))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    for row in rows:
        params = {name: row[name] for name in ranges}
        study.add_trial(optuna.trial.create_trial(params=params, distributions=ranges, value=row["value"]))
    return study.ask(ranges).params


def value(trace) -> float:
    """The value of a trial: the mean over repetitions of the final ELBO, nats; -inf if one is not finite."""
    last = trace.loc[trace["epoch"] == trace["epoch"].max(), "elbo"].to_numpy()
    return float(np.mean(last, dtype=np.float64)) if np.isfinite(last).all() else -np.inf


def _distributions(optuna, ranges):
    uniform, integers = optuna.distributions.FloatDistribution, optuna.distributions.IntDistribution
    searched: dict[str, Any] = {"step_size": uniform(ranges.step_size.low, ranges.step_size.high, log=True)}
    if ranges.beta is not None:
        searched["beta"] = uniform(ranges.beta.low, ranges.beta.high)
    if ranges.r is not None:
        searched["r"] = integers(ranges.r.low, ranges.r.high)
    return searched


def _resume(path, mark, names):
    """The trials of a checkpoint; none if it is missing, or from another spec, other data or other versions."""
    if (arrays := artifact.read_checkpoint(path, mark)) is None or set(arrays) != set(names):
        return []
    if len({one.shape for one in arrays.values()}) > 1 or any(one.ndim != 1 for one in arrays.values()):
        return []
    return [dict(zip(names, row, strict=True)) for row in zip(*(arrays[name].tolist() for name in names), strict=True)]


def _optuna():
    try:
        import optuna
    except ImportError as error:
        raise UserError("tuning needs optuna: pip install 'lowvar[workflow]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
