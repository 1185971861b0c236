"""The worked examples of docs: their code, and their experiments beside it, as a reader has them."""

import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import yaml

from lowvar.core.files import write_text
from lowvar_studies.jobs import commands
from lowvar_studies.jobs.common_spec import merged

DOCS = Path(__file__).parents[1] / "docs"
SCALE = "smoke"

CLAIMS = {
    "variational": """
- id: between
  statement: damped ends below naive
  source: ours
  test: {effect: variance_ratio, problem: breast_cancer, method: damped, others: [naive], block: mu, below: 1}
- id: published
  statement: a number
  source: ours
  test: {effect: value, table: decomposition, column: variance, published: 1, tolerance: 0.1,
         at: {problem: breast_cancer, method: naive, source: total, block: all, end: true}}
- id: hidden
  statement: what falling keeps of its past is an error that fresh noise does not show
  source: ours
  test: {effect: measured_ratio, problem: whole, method: falling, of: squared_error, moment: end, to: variance, above: 1}
""",
    "search": """
- id: arrives
  statement: ranked arrives
  source: ours
  test: {effect: share, problem: ellipsoid_10, method: ranked, event: target, at_least: 1}
- id: pairs
  statement: pairs have less variance
  source: ours
  test: {effect: value, table: decomposition, column: to_iid, at: {problem: ellipsoid_10, scheme: antithetic,
         baseline: mean, population: 4, sigma: 0.5, block: mu, source: total}, below: 1}
""",
    "integral": """
- id: pays
  statement: the ridge pays at ten points
  source: ours
  test: {effect: error_ratio, problem: borehole, task: high, method: ridge, sizes: 10, others: [zero_variance], of: rmse,
         below: 1}
- id: truth
  statement: the integral is what it is
  source: ours
  test: {effect: value, table: truth, column: truth, at: {problem: growth, task: second}, truth: true, published: 1, plus_minus: 0.1}
""",
}
SPLIT = {"model": "blr", "dataset": "breast_cancer", "scaling": "minmax", "solver": {"batch_size": 100},
         "decomposition": None}  # fmt: skip
# what the pages' experiments lack of the files that their families can leave
ALSO = {
    "variational": {
        "problems": {"breast_cancer": {"methods": {"naive": None, "cv": None, "damped": None}},
                     "whole": {**SPLIT, "split": {"test": 0.2},
                               "methods": dict.fromkeys(("falling", "slow", "slower", "searched"))},
                     "half": {**SPLIT, "split": {"test": 0.2, "train": 0.5}, "methods": {"slow": None}}},
        "methods": {"falling": {"estimator": "storm",
                                "solver": {"schedule": {"kind": "step", "beta": 0.5, "r": 5}, "particles": 2,
                                           "diagnostics": {"draws": 4, "reference": 16}}},
                    "slow": {"estimator": "naive", "solver": {"schedule": {"kind": "step", "beta": 0.5, "r": 6}}},
                    "slower": {"estimator": "naive", "solver": {"schedule": {"kind": "step", "beta": 0.5, "r": 8}}},
                    "searched": {"estimator": "naive", "solver": {"schedule": {"kind": "step", "beta": 0.5, "r": 9}},
                                 "tune": {"step_size": {"low": 1.0e-4, "high": 1.0e-3}, "r": {"low": 7, "high": 9}}}},
        "tuning": {"trials": 1, "epochs": 1, "repetitions": 1},
    },
    "search": {
        "decomposition": {"problems": ["ellipsoid_10"], "sigmas": [0.5], "populations": [4], "replicates": 50,
                          "schemes": ["iid", "antithetic"], "baselines": ["mean"]},
        "rates": {"first": 10},
        "groups": {"both": ["ellipsoid_10", "ellipsoid_30"]},
        "draw": ["effort", "curves", "profiles", "groups", "scaling", "rates", "gradients", "seconds"],
    },
    "integral": {
        "problems": {"borehole": {"methods": ["monte_carlo", "zero_variance", "ridge"]},
                     "growth": {"problem": "worked_examples:growth", "sizes": [[6, 5], [12, 10]],
                                "methods": ["monte_carlo", "ridge", "paper_cv"]},
                     "last": {"within": "growth", "tasks": ["second"], "sizes": [10], "methods": ["ridge"]}},
        "methods": {"paper_cv": {"options": {"epochs": 4, "tuning_epochs": 0, "batch": 5, "rate": 0.01, "record": 2}}},
        "illustrate": {"fits": {"growth": ["ridge", "paper_cv"]}, "stein_kernels": True,
                       "epochs": {"growth": ["paper_cv"]}, "power_scores": "growth", "predictive": "growth"},
        "draw": ["errors", "boxes", "split", "fits", "stein_kernels", "epochs", "power_scores", "predictive",
                 "seconds"],
    },
}  # fmt: skip


def blocks(page, language):
    """The fenced blocks of a worked example in a language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S)


def code(family):
    """The code of a family's page, and the name of its factory."""
    content = blocks(PAGES[family], "python")[0]
    return content, re.findall(r"^def (\w+)\(", content, re.M)[0]


def factory(family):
    """The factory of a family's page."""
    content, name = code(family)
    exec(content, found := {})
    return found[name]


def growth():
    """A problem of one's own: two targets, a derived quantity, facts for every picture."""
    from lowvar_studies.integrals.normal import independent_normals
    from lowvar_studies.integrals.problem import Truth

    times = np.arange(4.0)

    def solve(points, at):
        return np.exp(0.1 * points[:, None, :1] * np.asarray(at)[:, None]) * np.array([1.0, 2.0])

    return independent_normals(
        "growth",
        ("first", "second"),
        (0, 1),
        ((np.zeros(1), np.ones(1)), (np.zeros(1), np.full(1, 2.0))),
        lambda t, points: np.cos(points[:, 0]) if t == 0 else points[:, 0] ** 2 / 4,
        lambda effort: Truth(
            np.array([np.exp(-0.5), 1.0]), np.zeros(2), "in closed form", {"both": (np.exp(-0.5) + 1.0, 0.0)}
        ),
        derived={"both": lambda values: values.sum(1)},
        about={"ladder": np.array([0.0, 1.0]), "series": ("hare", "lynx"), "times": times, "solve": solve,
               "observations": solve(np.ones((1, 1)), times)[0], "task_times": np.array([1.0, 1.5])},
    )  # fmt: skip


PAGES = {
    "variational": "adding-an-estimator.md",
    "search": "adding-a-search.md",
    "integral": "adding-an-integrator.md",
}


@contextmanager
def walked(family, folder):
    """The experiment of a family's page and its folder, run whole there by the functions behind the commands."""
    from lowvar_studies.datasets.prepare import prepare

    content = merged(yaml.safe_load(blocks(PAGES[family], "yaml")[0]), ALSO[family])
    source, name = code(family)
    (folder / f"{name}.py").write_text(source)
    (folder / f"{content['name']}.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    (folder / "claims.yaml").write_text(CLAIMS[family])
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        place = commands.Study.load(f"{content['name']}.yaml", SCALE)
        for problem in place.experiment.problems:
            if data := place.experiment.data(problem):
                prepare(data.dataset, data.scaling, out=place.prepared(problem))
        for job in place.jobs():
            getattr(commands, job.kind)(job)
        commands.tables(place)
        commands.tables(place, seconds=True)
        for kind, figure in place.figures.items():  # their rows: pictures have tests of their own
            rows = figure.rows(place.table(figure.table), **place.options(kind))
            write_text(place.figure_files(kind)[0].with_suffix(".csv"), rows.to_csv(index=False))
        commands.claims(place, "claims.yaml")
        patch.undo()
        yield place, folder
