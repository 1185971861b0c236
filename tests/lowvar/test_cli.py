"""The command line: a user's mistake is one message and exit code 2, and leaves nothing behind."""

import argparse
import os
import subprocess
import sys

import numpy as np
import pytest
import yaml
from commands import lowvar

SMALL = {
    "name": "small",
    "title": "Small",
    "problems": {"bc": {"model": "logistic_regression", "dataset": "breast_cancer"}},
    "methods": {"naive": None},
    "solver": {"step_sizes": [1e-3], "batch_size": 5, "epochs": 2},
    "decomposition": {"leader": "naive", "step_size": 1e-3, "epochs": 2, "replicates": 4, "columns": 2,
                      "points_along": 1},
}  # fmt: skip
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
RUN = ["run", "small.yaml", "--problem", "bc", "--method", "naive"]


@pytest.fixture
def folder(tmp_path):
    for content in (SMALL, SEARCH):
        (tmp_path / f"{content['name']}.yaml").write_text(yaml.safe_dump(content))
    return tmp_path


MODEL = """
import jax.numpy as jnp, numpyro, numpyro.distributions as dist
def good(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as i:
        numpyro.sample("y", dist.Normal(x[i] @ w, 1), obs=y[i])
def per_row(x, y=None, batch_size=None):
    w = numpyro.sample("w", dist.Normal(0, 1).expand([x.shape[1]]).to_event(1))
    with numpyro.plate("data", x.shape[0], subsample_size=batch_size) as i:
        u = numpyro.sample("u", dist.Normal(0, 1))
        numpyro.sample("y", dist.Normal(x[i] @ w + u, 1), obs=y[i])
def own_bug(x, y=None):
    raise ValueError("my own bug")
"""


OF_BC, OWN, E = [*RUN[2:]], ["decompose", "model.py:good", "--data"], ["--problem", "e", "--method", "fast_ingo"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["rnu"], "'run'"),
        (["fetch", "sonnar"], "'sonar'"),
        (["prepare", "mnist", "--scaling", "lenet"], "lowvar fetch mnist"),
        (["run", "smal.yaml", *OF_BC], "'small'"),
        ([*RUN, "--data", "no.npz"], "no.npz"),
        ([*RUN, "--threads", "100000"], "--threads 100000"),
        ([*RUN, "--device", "gpu", "--data", "bc.npz"], "--device gpu"),
        (["run", "search.yaml", *E, "--data", "d.npz"], "--data d.npz"),
        (["run", "search.yaml", *E, "--scale", "smoke"], "budget 5"),
        ([*OWN, "nan.npz"], "nan.npz"),
        (["decompose", "leaves.py:model", "--data", "d.npz"], "SystemExit: 0"),
        (["decompose", "model.py:own_bug", "--data", "d.npz"], "my own bug"),
        ([*OWN, "d.npz", "--scale", "quick"], "--scale"),
        (["decompose", "small.yaml", "--problem", "bc", "--step-size", "1", "--seed", "0"], "--step-size, --seed"),
        (["table", "search.yaml"], "lowvar run search.yaml --scale quick --problem bits --method ingo_binary --backend jax --out results/"),
        (["integrate", "d.npz"], "'x'"),
        ([*OWN, "d.npz", "--batch-sise", "5"], "'--batch-size'"),
        ([*OWN, "d.npz", "--batch-sise=5"], "'--batch-size'"),
        (["run", "small.yaml", "--problm", "bc", "--method", "naive"], "'--problem'"),
        (["--debgu", "list"], "'--debug'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)  # fmt: skip
def test_mistakes(folder, words, name):
    (folder / "model.py").write_text(MODEL)
    (folder / "leaves.py").write_text("import sys\nsys.exit(0)")
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 2)), rng.normal(size=20)
    np.savez(folder / "d.npz", x=x, y=y)
    np.savez(folder / "nan.npz", x=np.where(x == x.max(), np.nan, x), y=y)
    before = sorted(folder.rglob("*"))
    done = lowvar(folder, *words)
    assert done.returncode == 2, done.stderr
    assert name in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert [p for p in sorted(folder.rglob("*")) if "__pycache__" not in str(p)] == before


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
                  ["figure", "shares", "seconds", "small.yaml"]):  # fmt: skip
        done = lowvar(folder, *words)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
    assert all((folder / f"{results}/figures/{kind}.png").stat().st_size > 10_000 for kind in ("shares", "seconds"))
    changed = SMALL | {"solver": {**SMALL["solver"], "epochs": 3}}
    (folder / "small.yaml").write_text(yaml.safe_dump(changed))
    for words in (["table", "small.yaml"], ["figure", "shares", "small.yaml"]):
        done = lowvar(folder, *words)
        assert done.returncode == 2
        assert "stale" in done.stderr
        assert "make it with: lowvar" in done.stderr


def test_lists(folder):
    whole = lowvar(folder, "list")
    assert whole.returncode == 0, whole.stderr
    named = dict(line.split(": ", 1) for line in whole.stdout.splitlines())
    lists = ("estimators", "searches", "integrators", "guides", "optimizers", "backends")
    assert list(named) == [*lists, "datasets", "models", "functions", "integrals", "figures"]
    assert lowvar(folder, "list", "searches").stdout.splitlines() == named["searches"].split(", ")
    rows = lowvar(folder, "list", "estimators").stdout.splitlines()
    assert [line.split()[0] for line in rows] == named["estimators"].split(", ")
    assert all(len(line.split()) > 4 for line in rows), rows


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
    [["run", "a.yaml", "--problem", "p", "--method", "m"], ["decompose", "a.yaml"], ["list", "figures"]],
    ids=lambda words: words[0],
)
def test_a_command_of_the_laboratory_names_the_extra_that_it_needs(bare, words):
    done = bare(*words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert f"lowvar {words[0]}" in done.stderr
    assert "pip install 'lowvar[workflow]'" in done.stderr


def test_integrals_of_lowvars_own_methods_import_neither_torch_nor_jax(tmp_path):
    x = np.random.default_rng(0).normal(size=(60, 1))
    np.savez(tmp_path / "s.npz", samples=x, scores=-x, values=x**2)
    code = "import sys; from lowvar.cli import main; main(sys.argv[1:]); print({'torch', 'jax'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code, "integrate", "s.npz"], cwd=tmp_path, capture_output=True,
                          text=True)  # fmt: skip
    assert done.stdout.endswith("set()\n"), done.stdout + done.stderr


@pytest.mark.parametrize(("method", "used"), [("control_functional", False), ("neural", True), ("mine:f", True)])
def test_runs_of_integrators_load_torch_where_they_declare_it(method, used):
    from lowvar_studies.commands import _uses_torch

    assert _uses_torch(argparse.Namespace(method=argparse.Namespace(integrator=method))) == used


@pytest.mark.long
def test_the_librarys_commands_need_its_dependencies_alone(bare, tmp_path):
    whole = bare("list")
    assert whole.returncode == 0, whole.stderr
    named = dict(line.split(": ", 1) for line in whole.stdout.splitlines())
    assert "joint_svrg" in named["estimators"]
    assert "logistic_regression" in named["models"]
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


def test_notes_and_mistakes_name_the_options_of_the_command_line(folder):
    x = np.random.default_rng(1).normal(size=(60, 2))
    np.savez(folder / "s.npz", samples=x, scores=-x, values=np.exp(0.3 * x[:, 0]) + x[:, 1] ** 2)
    np.savez(folder / "chains.npz", samples=x[None], scores=-x[None], values=x[None])
    done = lowvar(folder, "integrate", "s.npz", "--method", "zero_variance")
    assert "--exact-scores" in done.stdout
    assert "exact_scores" not in done.stdout
    done = lowvar(folder, "integrate", "chains.npz")
    assert done.returncode == 2
    assert "--chain" in done.stderr
    assert "chain=" not in done.stderr


@pytest.mark.long
def test_decompose_compares_the_estimators_that_take_the_model(tmp_path):
    (tmp_path / "model.py").write_text(MODEL)
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "d.npz", x=rng.normal(size=(12, 1)), y=rng.normal(size=12))
    done = lowvar(tmp_path, "decompose", "model.py:per_row", "--data", "d.npz", "--steps", "20", "--batch-size", "4")
    assert done.returncode == 0, done.stderr
    first = {line.split()[0] for line in done.stdout.splitlines() if line.strip()}
    assert {"naive", "joint_svrg"} <= first
    assert "joint" not in first  # its table would hold each row's own variables


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


@pytest.mark.long
def test_a_search_walked_by_hand(folder):
    """Every command in turn, as the workflow calls them; no data anywhere, and a claim that is judged by its budget."""
    content = SEARCH | {"methods": {"fast_ingo": None, "ingo_binary": None}, "remarks": "Read *this* first.",
                        "problems": {"e": SEARCH["problems"]["e"] | {"methods": ["fast_ingo"]}}}  # fmt: skip
    for place in ("workflow/experiments", "workflow/claims"):
        (folder / place).mkdir(parents=True)
    path = "workflow/experiments/search.yaml"
    (folder / path).write_text(yaml.safe_dump(content))
    stated = {"id": "a", "statement": "it arrives", "source": "ours",
              "test": {"effect": "share", "event": "target", "problem": "e", "method": "fast_ingo", "at_least": 1}}  # fmt: skip
    (folder / "workflow/claims/search.yaml").write_text(yaml.safe_dump([stated]))
    results = "results/quick/search"
    for words in (["run", path, "--problem", "e", "--method", "fast_ingo", "--out", f"{results}/runs/e/fast_ingo-jax"],
                  ["table", path], ["table", path, "--seconds"], ["figure", "effort", path], ["figure", "seconds", path],
                  ["claims", path], ["keep", path, "--draft", "--out", "kept"]):  # fmt: skip
        done = lowvar(folder, *words)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr
    assert (folder / results / "metrics.json").is_file()
    judged = (folder / results / "claims.csv").read_text()
    assert ",fails,budget 60 evaluations" in judged
    kept = (folder / "kept" / "search.md").read_text()
    assert "it arrives" in kept
    assert "Read *this* first." in kept
    assert all((folder / f"kept/search-{kind}.png").stat().st_size > 10_000 for kind in ("effort", "seconds"))
    (folder / results / "runs/e/fast_ingo-jax/provenance.json").write_text("{")
    done = lowvar(folder, "keep", path, "--draft", "--out", "kept")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "provenance.json" in done.stderr
