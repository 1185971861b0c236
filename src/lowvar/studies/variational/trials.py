"""Settings by Bayesian search (TPE): trial runs one after another, each proposed from the ones before.

A trial is proposed from the table of those before it and a seed of its own, by nothing else: a search that was killed
goes on with the trials that one never interrupted would have made.
"""

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np

from lowvar.errors import UserError
from lowvar.files import sweep
from lowvar.noise import named_key
from lowvar.runs import artifact, loop

_SECONDS = ("seconds", "compile_seconds")


def search(job, engine: Callable, *, checkpoint: Path, mark, progress=None, every: float = 10.0):
    """All trials of a study.

    Args:
        job: a ``TuneJob``.
        engine: of the spec of a run.
        checkpoint: file of the trials that are done, written after each of them; ``checkpoint.trial.npz`` beside it
            has the state of the one under way. If it carries ``mark``, the study goes on from it.
        mark: the artifact stamp that ties a checkpoint to its spec and data.
        progress: called with the number of trials just done.
        every: least time between checkpoints within a trial, seconds.

    Returns:
        A table with a row per trial: ``number`` from 0, the settings that are tuned, ``value`` (mean over repetitions
        of the ELBO at the end, nats; minus infinity where one is not finite) and ``status``; and one of seconds.

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
    with _made_once():
        while len(rows) < job.trials:
            spec = job.trial(choice := propose(job, rows))
            alone = {**mark, "spec": spec.hash}
            result = loop.run(engine(spec), checkpoint=within, mark=alone, every=every)
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


@contextlib.contextmanager
def _made_once():
    """Keeps the programs of trials, which differ in their arguments alone, from one trial to the next."""
    from jax.experimental.compilation_cache import compilation_cache

    settings = {"jax_compilation_cache_dir": None, "jax_persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, name) for name in settings}
    with tempfile.TemporaryDirectory() as folder:
        try:
            for name, value in settings.items():
                jax.config.update(name, folder if value is None else value)
            compilation_cache.reset_cache()
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()


def propose(job, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The settings of the next trial: by the tree-structured Parzen estimator, the first ten at random.

    Its seed has the names of the problem and the trial, not the method's: methods begin with the same draws.

    Args:
        job: a ``TuneJob``.
        rows: settings and ``value`` of the trials that are done.

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
    """What a trial is judged by: the mean over repetitions of the last ELBO, nats; -inf if one is not finite."""
    last = trace.loc[trace["epoch"] == trace["epoch"].max(), "elbo"].to_numpy()
    return float(np.mean(last, dtype=np.float64)) if np.isfinite(last).all() else -np.inf


def _distributions(optuna, ranges):
    of = optuna.distributions
    made: dict[str, Any] = {"step_size": of.FloatDistribution(ranges.step_size.low, ranges.step_size.high, log=True)}
    if ranges.beta is not None:
        made["beta"] = of.FloatDistribution(ranges.beta.low, ranges.beta.high)
    if ranges.r is not None:
        made["r"] = of.IntDistribution(ranges.r.low, ranges.r.high)
    return made


def _resume(path, mark, names):
    """The trials of a checkpoint; none if there is none, or if another spec, other data or versions made it."""
    if not path.is_file():
        return []
    try:
        arrays, found = artifact.read_arrays(path)
        if found != mark or set(arrays) != set(names):
            raise UserError(f"{path}: of another study")
    except UserError:
        path.unlink()
        return []
    return [dict(zip(names, row, strict=True)) for row in zip(*(arrays[name].tolist() for name in names), strict=True)]


def _optuna():
    try:
        import optuna
    except ImportError as error:
        raise UserError("tuning needs optuna: pip install 'lowvar[workflow]'") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna
