"""The command line: a user's mistake is one message and exit code 2, and leaves nothing behind."""

import argparse
import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
import yaml
from commands import lowvar
from PIL import Image

SMALL = {
    "name": "small",
    "title": "Small",
    "problems": {"bc": {"model": "logistic_regression", "dataset": "breast_cancer"}},
    "methods": {"naive": None},
    "solver": {"step_sizes": [1e-3], "batch_size": 5, "epochs": 2},
    "decomposition": {"leader": "naive", "step_size": 1e-3, "epochs": 2, "replicates": 4, "columns": 2,
                      "points_along": 1},
}  # fmt: skip
TWO = SMALL | {
    "name": "two",
    "problems": SMALL["problems"] | {"sonar": {"model": "logistic_regression", "dataset": "sonar"}},
}
SEARCH = {
    "name": "search",
    "title": "A small search",
    "family": "search",
    "problems": {
        "e": {"function": "ellipsoid", "dim": 4, "methods": ["fast_ingo"]},
        "bits": {"function": "binary_reconstruction", "dim": 8, "methods": ["ingo_binary"]},
    },
    "methods": {"fast_ingo": None, "ingo_binary": None},
    "search": {"budget": 60, "repetitions": 2},
    "draw": ["effort", "curves", "seconds"],
    "scales": {"smoke": {"search": {"budget": 5}}},
}
INTEGRAL = {
    "name": "integral",
    "title": "Small integrals",
    "family": "integral",
    "problems": {"b": {"problem": "borehole", "sizes": [5, 8]}},
    "methods": {"monte_carlo": None, "control_functional": None},
    "estimation": {"repetitions": 2},
}
RUN = ["run", "small.yaml", "--problem", "bc", "--method", "naive"]


@pytest.fixture
def folder(tmp_path):
    for content in (SMALL, TWO, SEARCH, INTEGRAL):
        (tmp_path / f"{content['name']}.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


MODEL = """
import jax.numpy as jnp, numpyro, numpyro.distributions as dist
def good(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as i:
        numpyro.sample("y", dist.Normal(x[i] @ w, 1), obs=y[i])
def own_bug(x, y=None):
    raise ValueError("my own bug")
def branches(x, y=None):
    w = numpyro.sample("w", dist.Normal(0, 1))
    with numpyro.plate("data", x.shape[0]) as i:
        numpyro.sample("y", dist.Normal(w if w > 0 else 2 * w, 1), obs=y[i])
"""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu"], "unknown command 'rnu': did you mean 'run'?"),
        (["fetch", "sonnar"], "unknown dataset 'sonnar': did you mean 'sonar'?"),
        (["prepare", "mnist", "--scaling", "lenet"], "is missing: run `lowvar fetch mnist`"),
        (["run", "smal.yaml", "--problem", "bc", "--method", "naive"], "did you mean 'small'?"),
        (["run", "small.yaml", "--problem", "bc", "--method", "nave"], "unknown method 'nave': did you mean 'naive'?"),
        ([*RUN, "--data", "no.npz"], "no.npz"),
        ([*RUN, "--threads", "0"], "--threads 0"),
        ([*RUN, "--threads", "100000"], "--threads 100000: it must be at most 1024"),
        ([*RUN, "--checkpoint-every", "nan"], "--checkpoint-every nan: it must be a number, 0 or more"),
        (["run", "nofile.yaml", "--problem", "bc", "--method", "naive"], "nofile.yaml: no such experiment file"),
        (["decompose", "model.py", "--data", "d.npz"], "model.py: no function is named; write model.py:FUNCTION"),
        (["decompose", "model.py:good", "--data", "empty.npz"], "good: there are no rows: 'x' has shape (0, 2), 'y' has shape (0,)"),
        (["decompose", "model.py:good", "--data", "unseen.npz"], "cannot be run on these data: TypeError: 'NoneType' object is not subscriptable"),
        (["decompose", "leaves.py:model", "--data", "d.npz"], "leaves.py: cannot be imported: SystemExit: 0"),
        (["decompose", "model.py:own_bug", "--data", "d.npz"], "cannot be run on these data: ValueError: my own bug"),
        (["decompose", "model.py:branches", "--data", "d.npz"], "branches: the model fails (TracerBoolConversionError"),
        (["decompose", "small.yaml", "--problem", "bc", "--estimators", "cv"], "--estimators: only for a model of your own; the settings of small.yaml apply instead"),
        (["decompose", "small.yaml", "--problem", "bc", "--step-size", "1", "--seed", "0"], "--step-size, --seed: only for a model of your own"),
        (["decompose", "model.py:good", "--data", "d.npz", "--scale", "quick"], "--scale: only for an experiment; model.py:good is a model of your own: leave it out"),
        (["decompose", "model.py:good", "--data", "d.npz", "--problem", "bc"], "--problem: only for an experiment"),
        (["decompose", "small.yaml"], "breast_cancer"),  # its only problem, whose data are missing
        (["decompose", "two.yaml"], "--problem: name one (known: bc, sonar)"),
        (["decompose", "nosuch.py:model", "--data", "d.npz"], "nosuch.py: no such file; write MODEL.py:FUNCTION"),
        (["decompose", "model.py:good"], "--data: give an npz file whose names are the model's keyword arguments"),
        (["decompose", "model.py:goood", "--data", "d.npz"], "unknown function 'goood': did you mean 'good'?"),
        (["decompose", "model.py:good", "--data", "d.npz", "--step-size", "-1"], "step_size -1.0: it must be a positive number"),
        (["decompose", "model.py:good", "--data", "d.npz", "--estimators", "naive,jiont"], "unknown estimator 'jiont': did you mean 'joint'?"),
        (["decompose", "model.py:good", "--data", "nan.npz"], "nan.npz"),
        (["decompose", "model.py:good", "--data", "text.npz"], "text.npz"),
        (["table", "small.yaml"], "no such file; make it with: lowvar prepare breast_cancer --scaling minmax"),
        (["figure", "sharez", "small.yaml"], "unknown figure 'sharez': did you mean 'shares'?"),
        (["run", "search.yaml", "--problem", "e", "--method", "fast_ingo", "--data", "d.npz"], "--data d.npz: e has no data"),
        (["run", "search.yaml", "--problem", "e", "--method", "fast_ingo", "--scale", "smoke"], "budget 5: one generation takes"),
        (["decompose", "search.yaml"], "search.yaml: this experiment has no decomposition"),
        (["table", "search.yaml"], "make it with: lowvar run search.yaml --scale quick --problem bits --method ingo_binary --backend jax --out results/"),
        (["figure", "scaling", "search.yaml"], "experiment 'search': unknown figure 'scaling'"),
        (["sample", "small.yaml", "--problem", "bc"], "experiment 'small' has no samples"),
        (["run", "integral.yaml", "--problem", "b", "--method", "monte_carlo"], "samples.npz: no such file; make it with: lowvar sample integral.yaml"),
        (["run", "integral.yaml", "--problem", "b", "--method", "monte_carlo", "--data", "d.npz"], "d.npz: not an array file of lowvar"),
        (["integrate", "d.npz"], "array 'x': the names must be samples, scores and values"),
        (["list", "serches"], "unknown list 'serches': did you mean 'searches'?"),
        ([*RUN, "--device", "gpu", "--data", "bc.npz"], "--device gpu: JAX finds no GPU"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_mistakes(folder, words, message):
    (folder / "model.py").write_text(MODEL)
    (folder / "leaves.py").write_text("import sys\nsys.exit(0)")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    np.savez(folder / "d.npz", x=x, y=y)
    np.savez(folder / "empty.npz", x=x[:0], y=y[:0])
    np.savez(folder / "unseen.npz", x=x)
    np.savez(folder / "nan.npz", x=np.where(x == x.max(), np.nan, x), y=y)
    np.savez(folder / "text.npz", x=x.astype(str), y=y)
    before = sorted(folder.rglob("*"))
    done = lowvar(folder, *words)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert [p for p in sorted(folder.rglob("*")) if "__pycache__" not in str(p)] == before


def test_batch_larger_than_the_data(folder):
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL | {"solver": {**SMALL["solver"], "batch_size": 570}}))
    lowvar(folder, "prepare", "breast_cancer", "--out", "bc.npz")
    done = lowvar(folder, *RUN, "--data", "bc.npz", "--out", "o")
    assert done.returncode == 2
    assert "batch size 570: it must be between 1 and the number of rows, 569" in done.stderr
    assert not (folder / "o").exists()


def test_debug_keeps_the_traceback(folder):
    done = lowvar(folder, "--debug", "fetch", "sonnar")
    assert done.returncode == 1
    assert "Traceback" in done.stderr


def test_results_folder_that_cannot_be_written(folder):
    lowvar(folder, "prepare", "breast_cancer", "--out", "bc.npz")
    (folder / "taken").write_text("a file where a folder should be")
    done = lowvar(folder, *RUN, "--data", "bc.npz", "--out", "taken/o")
    assert done.returncode == 2
    assert "cannot write" in done.stderr
    assert "taken" in done.stderr


def test_full_disk(folder, tiny_disk):
    lowvar(folder, "prepare", "breast_cancer", "--out", "bc.npz")
    done = lowvar(folder, *RUN, "--data", "bc.npz", "--out", tiny_disk / "o")
    assert done.returncode == 2, done.stderr
    assert "cannot write" in done.stderr
    assert [p for p in tiny_disk.rglob("*") if p.is_file()] == []


def test_whole_walk_by_hand(folder):
    """Every command in turn, then an edit: the tables refuse the stale run and say how to make it."""
    lowvar(folder, "prepare", "breast_cancer", "--out", "data/prepared/breast_cancer-minmax.npz")
    results = "results/quick/small"
    data = "data/prepared/breast_cancer-minmax.npz"
    run = [*RUN, "--data", data, "--out", f"{results}/runs/bc/naive-jax"]
    decompose = ["decompose", "small.yaml", "--problem", "bc", "--data", data, "--out", f"{results}/decomposition/bc"]
    for words in (run, decompose, ["table", "small.yaml"], ["table", "small.yaml", "--seconds"],
                  *(["figure", kind, "small.yaml"] for kind in ("shares", "seconds"))):  # fmt: skip
        done = lowvar(folder, *words)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
    assert (folder / results / "figures" / "seconds.png").stat().st_size > 10_000
    changed = SMALL | {"solver": {**SMALL["solver"], "epochs": 3}}
    (folder / "small.yaml").write_text(yaml.safe_dump(changed))
    for words in (["table", "small.yaml"], ["figure", "shares", "small.yaml"]):
        done = lowvar(folder, *words)
        assert done.returncode == 2
        assert "stale" in done.stderr
        assert "make it with: lowvar" in done.stderr
    with np.load(folder / data) as prepared:
        np.savez(folder / data, x=np.zeros((4, 2)), y=np.zeros(4), meta=prepared["meta"])
    (folder / "small.yaml").write_text(yaml.safe_dump(SMALL))
    done = lowvar(folder, "table", "small.yaml")
    assert done.returncode == 2
    assert "made from other input data" in done.stderr


def test_lists(folder):
    whole = lowvar(folder, "list")
    assert whole.returncode == 0, whole.stderr
    named = dict(line.split(": ", 1) for line in whole.stdout.splitlines())
    lists = ("estimators", "searches", "integrators", "guides", "optimizers", "backends")
    assert list(named) == [*lists, "datasets", "models", "functions", "integrals", "figures"]
    for what, some in (("functions", {"ellipsoid", "swimmer"}), ("searches", {"fast_ingo", "pycma"}),
                       ("estimators", {"naive", "joint"}), ("figures", {"shares", "effort", "seconds"})):  # fmt: skip
        assert some <= set(named[what].split(", ")), what
    assert lowvar(folder, "list", "searches").stdout.splitlines() == named["searches"].split(", ")
    estimators = lowvar(folder, "list", "estimators").stdout.splitlines()
    assert [line.split()[0] for line in estimators] == named["estimators"].split(", ")
    assert all(len(line.split()) > 4 for line in estimators), estimators
    assert "grad f(w; B, eps), the default of stochastic variational inference." in estimators[0]
    assert "`" not in "".join(estimators)
    datasets = lowvar(folder, "list", "datasets").stdout.splitlines()
    assert [line.split()[0] for line in datasets] == named["datasets"].split(", ")
    said = {line.split()[0]: line for line in datasets}
    assert "unit, standard, none, lenet" in said["mnist"]
    assert "minmax, standard, none  " in said["sonar"]
    assert "lenet" not in said["sonar"]
    assert "169405 matches" in said["tennis"]


WITHOUT = """
import sys

class Hides:  # the packages are not there: not for import, nor for importlib.util.find_spec
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *rest):
        return None if name.partition(".")[0] in HIDDEN else self.finder.find_spec(name, *rest)

    def __getattr__(self, name):
        return getattr(self.finder, name)

HIDDEN = {"pydantic", "yaml", "requests", "urllib3", "sklearn", "joblib", "cloudpickle", "pyarrow"}
sys.meta_path[:] = map(Hides, sys.meta_path)
from lowvar.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def bare(tmp_path):
    """Runs ``lowvar WORDS`` where the packages of the laboratory are not installed."""

    def run(*words):
        command = [sys.executable, "-c", WITHOUT, *words]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    return run


@pytest.mark.parametrize(
    "words",
    [["run", "a.yaml", "--problem", "p", "--method", "m"], ["fetch", "sonar"], ["decompose", "a.yaml"], ["schema"],
     ["claims", "a.yaml"], ["list", "figures"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_command_of_the_laboratory_names_the_extra_that_it_needs(bare, words):
    done = bare(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert f"lowvar {words[0]}" in done.stderr
    assert "pip install 'lowvar[workflow]'" in done.stderr


def test_the_librarys_commands_need_its_dependencies_alone(bare, tmp_path):
    whole = bare("list")
    assert whole.returncode == 0, whole.stderr
    named = dict(line.split(": ", 1) for line in whole.stdout.splitlines())
    assert "joint_svrg" in named["estimators"]
    assert "logistic_regression" in named["models"]
    assert "lowvar[workflow]" in named["figures"]
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 1))
    np.savez(tmp_path / "s.npz", samples=x, scores=-x, values=x[:, 0] ** 2)
    done = bare("integrate", "s.npz", "--method", "zero_variance", "--exact-scores")
    assert done.returncode == 0, done.stderr
    (tmp_path / "model.py").write_text(MODEL)
    np.savez(tmp_path / "d.npz", x=x, y=x[:, 0] + rng.normal(size=60))
    done = bare("decompose", "model.py:good", "--data", "d.npz", "--steps", "20", "--estimators", "joint")
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "results/decomposition/model-good.csv").read_text().splitlines()
    assert any(row.startswith("joint,") or ",joint," in row for row in rows)


def test_names_are_checked_before_anything_is_fetched(tmp_path, monkeypatch):
    from lowvar.errors import UserError
    from lowvar_studies import commands

    fetch, fetched = importlib.import_module("lowvar_studies.datasets.fetch"), []
    monkeypatch.setattr(fetch, "fetch", lambda dataset, raw: fetched.append(dataset.name) or [])
    with pytest.raises(UserError, match="unknown dataset 'mnst'"):
        commands._fetch(argparse.Namespace(datasets=["tennis", "mnst"], raw=tmp_path))
    assert fetched == []
    commands._fetch(argparse.Namespace(datasets=["tennis", "mnist"], raw=tmp_path))
    assert fetched == ["tennis", "mnist"]


@pytest.mark.parametrize(
    ("given", "exported", "limits"),
    [
        (8, {"OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}, ("8", "8", "true")),
        (1, {"OMP_NUM_THREADS": "8", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=true"}, ("1", "1", "false")),
        (None, {"OMP_NUM_THREADS": "8", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=true"}, ("8", "1", "true")),
        (None, {}, ("1", "1", "false")),
    ],
)
def test_an_option_wins_over_an_exported_variable(given, exported, limits, monkeypatch):
    from lowvar import cli

    for name in ("OMP_NUM_THREADS", "NPROC", "XLA_FLAGS"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    for name, value in exported.items():
        monkeypatch.setenv(name, value)
    assert cli._limit_threads(given) == (given or 1)
    flag = os.environ["XLA_FLAGS"].rpartition("--xla_cpu_multi_thread_eigen=")[2]
    assert (os.environ["OMP_NUM_THREADS"], os.environ["NPROC"], flag) == limits


def test_xla_flags_may_name_a_file(tmp_path, monkeypatch):
    from lowvar.core import xla
    from lowvar.errors import UserError

    monkeypatch.setenv("XLA_FLAGS", str(tmp_path / "flags"))
    with pytest.raises(UserError, match=r"XLA_FLAGS=.*: it must be flags, which begin with --, or a file of them"):
        xla.flags()
    (tmp_path / "flags").write_text("--xla_a=1\n--xla_b=2\n")
    assert xla.flags() == "--xla_a=1 --xla_b=2"


@pytest.mark.parametrize(
    ("backend", "device", "exported", "platform"),
    [("torch", "auto", None, "cpu"), ("torch", "auto", "cuda", None), ("torch", "gpu", None, "cpu"),
     ("jax", "auto", None, None), ("jax", "cpu", "cuda", "cpu")],
)  # fmt: skip
def test_jax_is_told_its_device_whether_it_is_imported_or_not(backend, device, exported, platform, monkeypatch):
    import jax

    from lowvar import cli

    set_ = {}
    monkeypatch.setattr(jax.config, "update", set_.__setitem__)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    if exported:
        monkeypatch.setenv("JAX_PLATFORMS", exported)
    monkeypatch.setattr("torch.cuda.is_available", lambda: device == "gpu")
    monkeypatch.setattr("torch.set_default_device", lambda name: None)
    cli.configure(argparse.Namespace(device=device, threads=1), backend=backend, dtype="float64")
    assert set_.get("jax_platforms") == platform
    assert os.environ.get("JAX_PLATFORMS") == exported


@pytest.mark.parametrize("scaling", ["lenet", "unit"])
def test_training_is_announced(tmp_path, monkeypatch, capsys, scaling):
    """Before it begins, and only where there is any."""
    from lowvar_studies import commands

    fetch, prepare = (importlib.import_module(f"lowvar_studies.datasets.{name}") for name in ("fetch", "prepare"))
    before = []
    monkeypatch.setattr(fetch, "verify", lambda dataset, raw: {})
    monkeypatch.setattr(prepare, "prepare", lambda name, **_: before.append(capsys.readouterr().err) or "written")
    commands._prepare(argparse.Namespace(dataset="mnist", scaling=scaling, raw=tmp_path, out=None))
    note = "lowvar: lenet trains a small network on mnist: about two minutes on a CPU\n"
    assert before == [note if scaling == "lenet" else ""]
    assert capsys.readouterr().out == "written\n"


def test_a_search_walked_by_hand(folder):
    """Every command in turn, as the workflow calls them; no data anywhere, and a claim that is judged by its budget."""
    content = SEARCH | {"methods": {"fast_ingo": None, "ingo_binary": None}, "remarks": "Read *this* first.",
                        "problems": {"e": SEARCH["problems"]["e"] | {"methods": ["fast_ingo"]}}}  # fmt: skip
    for place in ("workflow/experiments", "workflow/claims"):
        (folder / place).mkdir(parents=True)
    path = "workflow/experiments/search.yaml"
    (folder / path).write_text(yaml.safe_dump(content))
    stated = {"id": "a", "statement": "it arrives", "source": "ours",
              "test": {"effect": "success_rate", "problem": "e", "method": "fast_ingo", "at_least": 1}}  # fmt: skip
    (folder / "workflow/claims/search.yaml").write_text(yaml.safe_dump([stated]))
    results = "results/quick/search"
    for words in (["run", path, "--problem", "e", "--method", "fast_ingo", "--out", f"{results}/runs/e/fast_ingo-jax"],
                  ["table", path], ["table", path, "--seconds"], ["figure", "effort", path], ["figure", "seconds", path],
                  ["claims", path], ["keep", path, "--out", "kept"]):  # fmt: skip
        done = lowvar(folder, *words)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
    assert (folder / results / "metrics.json").is_file()
    judged = (folder / results / "claims.csv").read_text()
    assert ",fails,budget 60 evaluations" in judged
    kept = (folder / "kept" / "search.md").read_text()
    assert "it arrives" in kept
    assert "\n\nRead *this* first.\n\n## Claims\n" in kept
    for kind in ("effort", "seconds"):
        large, small = (np.asarray(Image.open(path).convert("RGB"), float)
                        for path in (folder / results / f"figures/{kind}.png", folder / f"kept/search-{kind}.png"))  # fmt: skip
        assert large.shape == small.shape
        assert np.abs(large - small).mean() < 1  # of 255
    (folder / results / "runs/e/fast_ingo-jax/provenance.json").write_text("{")
    done = lowvar(folder, "keep", path, "--out", "kept")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "provenance.json: not a provenance.json of lowvar, or damaged" in done.stderr


def test_compiled_programs_are_kept_in_the_users_cache_folder(tmp_path, monkeypatch):
    """Unless a folder is named, by JAX's variable or in its configuration."""
    from types import SimpleNamespace

    import jax

    from lowvar.cli import configure

    names = (
        "jax_compilation_cache_dir",
        "jax_persistent_cache_min_compile_time_secs",
        "jax_enable_x64",
        "jax_platforms",
    )
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    try:
        for given, kept in ((None, str(tmp_path / "lowvar" / "programs")), ("/elsewhere", "/elsewhere")):
            jax.config.update("jax_compilation_cache_dir", given)
            configure(SimpleNamespace(device="cpu"), backend="jax", dtype="float64")
            assert jax.config.jax_compilation_cache_dir == kept
    finally:
        for name, value in before.items():
            jax.config.update(name, value)
