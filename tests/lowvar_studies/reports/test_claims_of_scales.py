"""Claims about rows that a scale does not make: not judged there, and no error; rows that no scale makes are one."""

import pandas as pd
import pytest
import yaml

from lowvar.errors import UserError
from lowvar_studies.jobs import commands as jobs
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports.claims import made_at
from lowvar_studies.reports.effect import Missing

INTEGRAL = {
    "family": "integral",
    "problems": {
        "borehole": {"problem": "borehole", "sizes": [10, 40], "methods": ["mc", "linear"]},
        "pair": {"problem": "borehole", "sizes": [[20, 10]], "methods": ["mc"]},
    },
    "methods": {"mc": {"integrator": "monte_carlo"}, "linear": {"integrator": "zero_variance"}},
    "estimation": {"repetitions": 5},
    "scales": {
        "smoke": {
            "problems": {"borehole": {"sizes": [10], "methods": ["mc"]}, "pair": {"sizes": [10]}},
        }
    },
}
AT = {"problem": "borehole", "method": "mc", "sizes": "10", "task": "high", "backend": "torch"}
ERROR = {"effect": "value", "table": "errors", "column": "mae", "published": 1}


def error(**at):
    """A claim about an error, at other values than those of ``AT``."""
    return ERROR | {"at": AT | at}


RATIO = {"effect": "error_ratio", "problem": "borehole", "method": "linear", "others": ["mc"], "sizes": 40, "below": 1}


def written(folder, content, *claims):
    """The study of an experiment at scale smoke, beside its claims."""
    path = folder / "one.yaml"
    path.write_text(yaml.safe_dump({"name": "one", "title": "one", **content}))
    (folder / "claims").mkdir(exist_ok=True)
    stated = [{"id": f"c{n}", "statement": "s", "source": "ours", "test": test} for n, test in enumerate(claims)]
    (folder / "claims/one.yaml").write_text(yaml.safe_dump(stated))
    return Study.load(path, "smoke", folder / "results")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the tables of the integrals at scale smoke."""
    study = written(folder := tmp_path_factory.mktemp("one"), INTEGRAL)
    for job in study.jobs():
        {"sample": jobs.sample, "run": jobs.run}[job.kind](job)
    jobs.tables(study)
    return folder


def test_what_other_scales_alone_make_is_not_made(folder):
    others = [error(sizes=40), error(method="linear"), RATIO, error(problem="pair", sizes="20/10"),
              {"effect": "coverage", "problem": "borehole", "method": "linear", "sizes": 10, "task": "high", "above": 0.5}]  # fmt: skip
    study = written(folder, INTEGRAL, error(), *others)
    rows = pd.read_csv(jobs.claims(study))
    assert list(rows["verdict"]) == ["fails"] + ["not made"] * len(others)
    assert rows["ours"].notna().tolist() == [True] + [False] * len(others)
    assert rows["note"][1:].str.contains("quick and paper").all()
    assert rows["published"][1] == 1


@pytest.mark.parametrize(
    ("test", "word"),
    [
        (error(sizes=41), "41"),
        (error(problem="boreholes"), "boreholes"),
        (error(method="mcc"), "mcc"),
        (error(task="hihg"), "hihg"),
        (error(task="hihg", sizes=40), "hihg"),  # nor do other sizes have such a task
        (error(problem="pair", sizes="10/20"), "10/20"),
        (error(problem="pair", sizes="20/10", method="linear"), "linear"),  # no scale runs it there
        (RATIO | {"others": ["mc", "mcc"]}, "mcc"),
        (error(backend="jax", sizes=40), "jax"),
    ],
)
def test_what_no_scale_makes_is_an_error(folder, test, word):
    with pytest.raises(UserError, match=f"claim 'c0'.*{word}"):
        jobs.claims(written(folder, INTEGRAL, test))


SEARCH = {
    "family": "search",
    "problems": {"sphere": {"function": "sphere", "dim": 3}, "levy": {"function": "levy", "dim": 2}},
    "methods": {"fast_ingo": None, "es": None},
    "search": {"budget": 500, "repetitions": 2},
    "decomposition": {"problems": ["levy"], "populations": [8, 16], "sigmas": [0.5], "schemes": ["iid", "rqmc"]},
    "scales": {
        "smoke": {"decomposition": None, "problems": {"levy": {"methods": ["es"]}}},
        "quick": {"decomposition": {"populations": [8]}},
    },
}
VARIATIONAL = {
    "problems": {"a": {"model": "logistic_regression", "dataset": "breast_cancer"}},
    "methods": {"naive": None, "cv": None, "mlmc": None},
    "solver": {"step_sizes": [0.1, 0.01], "batch_size": 10, "epochs": 1, "diagnostics": {}},
    "decomposition": {"leader": "naive", "batch_sizes": [10, 20], "methods": ["naive", "cv"], "epochs": 1, "step_size": 0.01,
                      "noises": {"one": {"noise": "iid", "particles": 8}, "two": {"noise": "rqmc", "particles": 8}}},
    "scales": {"smoke": {"solver": {"step_sizes": [0.1]},
                         "decomposition": {"batch_sizes": [10], "methods": ["naive"],
                                           "noises": {"two": {"noise": "iid", "particles": 8}}}}},
}  # fmt: skip
CELL = {"problem": "levy", "scheme": "rqmc", "baseline": "mean", "block": "mu", "source": "total", "sigma": 0.5}


@pytest.mark.parametrize(
    ("content", "table", "wanted", "scales"),
    [
        (SEARCH, "hits", {"problem": "sphere", "method": "es", "of": "mean", "backend": "jax"}, []),
        (SEARCH, "ends", {"problem": "levy", "method": "fast_ingo", "backend": "jax"}, ["quick", "paper"]),
        (SEARCH, "decomposition", {}, ["quick", "paper"]),
        (SEARCH, "decomposition", CELL | {"population": 8}, ["quick", "paper"]),
        (SEARCH, "decomposition", CELL | {"population": 16}, ["paper"]),
        (SEARCH, "decomposition", CELL | {"population": 17}, []),
        (SEARCH, "decomposition", CELL | {"sigma": 0.05}, []),
        (SEARCH, "decomposition", CELL | {"scheme": "antithetic"}, []),
        (SEARCH, "decomposition", CELL | {"problem": "sphere"}, []),  # its runs are not a decomposition
        (VARIATIONAL, "measured", {"problem": "a", "method": "cv", "step_size": 0.01}, ["quick", "paper"]),
        (VARIATIONAL, "measured", {"problem": "a", "method": "cv", "step_size": 0.02}, []),
        (VARIATIONAL, "decomposition", {"problem": "a", "method": "naive", "batch_size": 20}, ["quick", "paper"]),
        (VARIATIONAL, "designs", {"problem": "a", "method": "cv", "block": "all"}, ["quick", "paper"]),
        (VARIATIONAL, "designs", {"problem": "a", "method": "cv", "repetition": 3}, ["quick", "paper"]),  # a number
        (VARIATIONAL, "designs", {"problem": "a", "method": "mlmc", "block": "all"}, []),
        (VARIATIONAL, "schemes", {"problem": "a", "noise": "rqmc", "particles": 8}, ["quick", "paper"]),
        (VARIATIONAL, "schemes", {"problem": "a", "noise": "rqmc", "particles": 64}, []),
    ],
)
def test_the_settings_of_a_scale_tell_its_rows(tmp_path, content, table, wanted, scales):
    assert list(made_at(written(tmp_path, content), Missing(table, **wanted))) == scales
