"""What importing and asking for help cost, and what they do not pull in."""

import pickle
import re
import subprocess
import sys
import tomllib

import pytest

import lowvar

HEAVY = ("jax", "torch", "pandas", "numpyro", "sklearn", "matplotlib", "scipy", "pyarrow",
         "cma", "optuna", "gymnasium")  # fmt: skip


def run(code):
    """What a fresh Python prints."""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def cpu_seconds(code):
    """CPU time of a fresh Python that runs the code, less that of one that does not; the best of three."""
    clock = "\nimport time\nprint(time.process_time())"
    with_code, without = (min(float(run(c + clock).split()[-1]) for _ in range(3)) for c in (code, "pass"))
    return with_code - without


def loaded(code):
    """Which heavy modules a fresh Python has loaded after the code."""
    ask = f"{code}\nimport sys\nprint('loaded:', *(set({HEAVY!r}) & sys.modules.keys()))"
    return set(run(ask).split("loaded:")[-1].split())


def test_importing_is_cheap_and_loads_nothing_heavy():
    assert cpu_seconds("import lowvar") < 0.2
    assert loaded("import lowvar") == set()


def test_help_is_cheap_and_loads_nothing_heavy():
    main = "try:\n    main(['--help'])\nexcept SystemExit as done:\n    assert done.code == 0"
    code = f"from lowvar.cli import main\n{main}"
    assert cpu_seconds(code) < 0.5
    assert loaded(code) == set()


def test_the_specs_load_nothing_heavy(repository):
    """Snakemake reads all experiments at every start, and in every job of a cluster."""
    files = sorted(map(str, (repository / "workflow/experiments").glob("*.yaml")))
    assert len(files) > 20
    code = "from lowvar_studies.jobs.load import load_experiment\n"
    assert loaded(f"{code}for file in {files}: load_experiment(file, 'quick')") == set()


def test_the_version_is_the_package_s():
    from importlib.metadata import version

    assert lowvar.__version__ == version("lowvar")
    said = subprocess.run([sys.executable, "-m", "lowvar", "--version"], capture_output=True, text=True, check=True)
    assert said.stdout == f"lowvar {lowvar.__version__}\n"


def test_the_entry_points_are_those_of_pyproject(repository):
    """Else the package must be installed again: the laboratory's commands and methods would be missing."""
    from importlib.metadata import distribution

    declared = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = distribution("lowvar").entry_points
    assert "lowvar.commands" in declared
    for group, points in declared.items():
        assert {one.name: one.value for one in installed.select(group=group)} == points


def _pickles():
    import numpy as np
    import numpyro
    import numpyro.distributions as dist

    def model(y=None):
        mean = numpyro.sample("mean", dist.Normal(0, 1))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("y", dist.Normal(mean, 1), obs=y)

    pickle.dumps(lowvar.fit(model, {"y": np.arange(4.0)}, num_steps=2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("call", "package", "extra"),
    [
        (_pickles, "cloudpickle", "workers"),
        (lambda: lowvar.Parquet("rows.parquet", x="x"), "pyarrow", "files"),
        (lambda: lowvar.minimize(sum, [1.0, 1.0], 0.5, budget=50, workers=2), "joblib", "workers"),
    ],
)
def test_a_missing_package_is_named_by_the_call_that_needs_it(call, package, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(lowvar.UserError, match=rf"{package}: pip install 'lowvar\[{extra}\]'"):
        call()


def test_every_extra_that_a_text_names_exists(repository):
    extras = tomllib.loads((repository / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    paths = [*(repository / "src").rglob("*.py"), *repository.glob("docs/*.md"), repository / "README.md"]
    texts = "\n".join(path.read_text() for path in paths)
    named = {name for found in re.findall(r"lowvar\[([\w,]+)\]", texts) for name in found.split(",")}
    named |= set(re.findall(r"\(extra\s+`(\w+)`\)", texts))
    assert "plot" in named
    assert named <= set(extras)
    assert [one.split(">")[0] for one in extras["plot"]] == ["matplotlib"]  # for `fit.plot()`, and no more


def test_the_oldest_versions_that_are_tested_are_the_lower_bounds(repository):
    project = tomllib.loads((repository / "pyproject.toml").read_text())["project"]
    extras = [rows for name, rows in project["optional-dependencies"].items() if name != "gpu"]
    rows = [row for group in (project["dependencies"], *extras) for row in group if not row.startswith("lowvar")]
    bounds = dict(re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", row).groups() for row in rows)
    pins = (repository / "constraints-oldest.txt").read_text().splitlines()
    oldest = dict(line.split("==") for line in pins if "==" in line and not line.startswith("#"))

    def released(versions):
        return {name: ([*map(int, re.findall(r"\d+", text)), 0, 0, 0])[:4] for name, text in versions.items()}

    assert released(bounds) == released(oldest)


def test_the_hashes_are_of_the_pinned_versions(repository):
    """Of all but PyTorch; nothing in them is of one machine. ``make hashes`` makes them anew."""
    entries = re.findall(
        r"^([\w.-]+)==([^\s;]+)(.*(?:\n .*)*)", (repository / "constraints-hashes.txt").read_text(), re.M
    )
    hashed = {_normal(name): version for name, version, _ in entries}
    lines = (repository / "constraints.txt").read_text().splitlines()
    pins = {_normal(name): version for name, _, version in (line.partition("==") for line in lines if line[:1] != "#")}
    assert len(entries) == len(hashed)
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}$", rest) for _, _, rest in entries)
    assert {name: hashed.get(name) for name in pins} == {**pins, "torch": None}
    assert not re.search(r"//|file:|^-(?!-hash)", (repository / "constraints-hashes.txt").read_text(), re.M)


def _normal(name):
    return re.sub(r"[-_.]+", "-", name).lower()
