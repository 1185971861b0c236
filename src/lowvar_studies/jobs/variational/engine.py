"""The runs of a method of an experiment."""

from lowvar.vi.descent import step_size_of
from lowvar.vi.run import engine as engines
from lowvar.vi.run.settings import Method, Settings
from lowvar_studies.estimators import OWN


def build(problem, method: Method, settings: Settings, *, seed: int, name: str) -> engines.VariationalEngine:
    """The engine of an estimator, or of a solver with its own update.

    Args:
        problem: an objective.
        method: an estimator, or a name in ``OWN``, with its options.
        settings: the run's.
        seed: the experiment's.
        name: the problem's name, from which the keys of noise and starts derive.

    Raises:
        UserError: the method does not take its options, or these settings.
    """
    if method.factory not in OWN:
        return engines.build(problem, method, settings, seed=seed, name=name)
    OWN.check_options(method.factory, method.options, where="solver")
    make = OWN.get(method.factory)

    def make_solver(problem, sampler):
        return lambda setting: make(problem, sampler, step_size_of(setting), **method.options)

    keys = engines.noise_keys(seed, name, settings.repetitions)
    starts = engines.start_params(problem, settings.initial, seed, name, settings.repetitions)
    return engines.VariationalEngine(problem, make_solver, settings, keys, starts)
