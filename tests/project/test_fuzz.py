"""Whatever a file holds, a reader returns its content or refuses it in one sentence that names it."""

import copy
import functools
import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stopped import read_checkpoint

from lowvar import user
from lowvar.core import artifact
from lowvar.errors import UserError
from lowvar_studies.datasets.load import load
from lowvar_studies.jobs.load import load_experiment
from lowvar_studies.jobs.study import Study
from lowvar_studies.reports import claims

MANY, DRAWN = int(os.environ.get("INPUTS", 100_000)), 1000  # of a reader, in long tests; so many are hypothesis's own
SECONDS = 5  # of CPU, for one input
MEMORY = 0.5  # GB, of all inputs of a test and what is imported meanwhile
COUNTS = [100, pytest.param(MANY, marks=pytest.mark.long)]
WORDS = ("naive", "joint", "../x", "a b", "", "1e-3", "nan", "breast_cancer", "module:function", "x" * 300, "\x7f")
SPECIAL = st.sampled_from([10**30, -1, 0, 1e-320, float("nan"), float("inf")])
NUMBERS = st.one_of(st.integers(-3, 10), st.integers(), st.floats(), SPECIAL)
LEAVES = st.one_of(st.none(), st.booleans(), NUMBERS, st.sampled_from(WORDS), st.text(max_size=8))
JUNK = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(LEAVES, st.text()), inner, max_size=3)
    ),
    max_leaves=6,
)
SEEDS = st.integers(0, 2**32 - 1)
EXPERIMENTS = {
    "variational": """
        name: fuzzed
        title: Fuzzed
        problems: {breast_cancer: {model: logistic_regression, dataset: breast_cancer}}
        methods: {naive: null, joint: {options: {table: rows}}}
        solver: {step_sizes: [0.01], batch_size: 5, epochs: 3, repetitions: 2}
        decomposition: {leader: naive, step_size: 0.01, epochs: 2, points_along: 1, replicates: 4, columns: 2}
        scales: {smoke: {solver: {epochs: 1}}}
        """,
    "search": """
        {name: fuzzed, title: Fuzzed, family: search, search: {budget: 300, repetitions: 2},
         problems: {ellipsoid: {function: ellipsoid, dim: 5}}, methods: {fast_ingo: null, pycma: {options: {}}}}
        """,
    "integral": """
        {name: fuzzed, title: Fuzzed, family: integral, estimation: {repetitions: 3},
         problems: {borehole: {problem: borehole, sizes: [10]}}, methods: {monte_carlo: null, vector_valued: null}}
        """,
}
CLAIMS = """
- id: less
  statement: Less variance.
  source: Table 1
  test: {effect: variance_ratio, problem: breast_cancer, method: joint, others: [naive, cv], below: 1}
"""
TALLY = Counter()


@pytest.fixture
def folder(tmp_path):
    """A folder in memory, if there is one: a disk takes longer to overwrite a file than a reader to read it."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as place:
        yield Path(place)


@pytest.fixture(autouse=True)
def _tally(record_property, most_taken):
    TALLY.clear()
    yield
    assert most_taken() < MEMORY, "inputs took more memory than all that is imported meanwhile"
    record_property("inputs", TALLY["inputs"])
    record_property("refused", TALLY["refused"])


def fuzz(check, count, *strategies):
    """Calls ``check`` with ``count`` inputs, the same in every run.

    Hypothesis draws the first, and the others combine at random what it drew, since to draw takes longer than to read.
    """
    drawn = []

    def kept(values):
        drawn.append(values)
        check(*values)

    first = min(count, DRAWN)
    quiet = settings(
        max_examples=first, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    quiet(given(st.tuples(*strategies))(kept))()
    rng, values = random.Random(0), list(zip(*drawn, strict=True))
    while TALLY["inputs"] < count:
        one = [rng.choice(column) for column in values]
        try:
            check(*one)
        except BaseException as error:
            error.add_note(f"input: {one!r}")
            raise


def mutated(content, junk, seed):
    """``content`` with an entry at a random place replaced by junk, removed, renamed or added."""
    rng, content = random.Random(seed), copy.deepcopy(content)
    at = content
    while isinstance(at, dict | list) and at:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = rng.choice(keys)
        if rng.random() < 0.4 or not isinstance(at[key], dict | list) or not at[key]:
            break
        at = at[key]
    if not isinstance(at, dict | list) or not at:
        return junk
    kind = rng.random()
    if kind < 0.6:
        at[key] = junk
    elif kind < 0.7:
        del at[key]
    elif isinstance(at, dict):
        at[rng.choice([*WORDS, str(key)[1:]])] = at.pop(key) if kind < 0.85 else junk
    return content


def dumped(content):
    return yaml.dump(content, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), allow_unicode=True)


PIECES = (st.binary(max_size=20), st.integers(0, 2**32), st.integers(0, 60))


def read_or_refused(read, path, where=None):
    TALLY["inputs"] += 1
    start = time.process_time()
    try:
        return read()
    except UserError as error:
        said = str(error)
    finally:
        assert time.process_time() - start < SECONDS
    TALLY["refused"] += 1
    assert "\n" not in said, said
    assert str(where or path) in said, said
    return None


def fuzz_yaml(path, text, read, count, where=None):
    """Reads the YAML with junk at random places."""
    whole = yaml.safe_load(text)
    path.write_text(text)
    assert read(path)

    def check(junk, seed):
        path.write_text(dumped(mutated(whole, junk, seed)), encoding="utf-8")
        read_or_refused(lambda: read(path), path, where)

    fuzz(check, count, JUNK, SEEDS)


@pytest.mark.parametrize("family", EXPERIMENTS)
@pytest.mark.parametrize("count", [100, pytest.param(MANY // 3 + 1, marks=pytest.mark.long)])
def test_experiments(folder, family, count):
    read = functools.partial(load_experiment, scale="quick")
    fuzz_yaml(folder / "fuzzed.yaml", EXPERIMENTS[family], read, count, "fuzzed")


@pytest.mark.parametrize("count", COUNTS)
def test_claims(folder, count):
    fuzz_yaml(folder / "fuzzed.yaml", CLAIMS, claims.load, count)


@pytest.mark.parametrize("count", COUNTS)
def test_any_text_as_yaml(folder, count):
    path = folder / "fuzzed.yaml"
    pieces = st.lists(st.one_of(st.sampled_from("{}[]&*!|>-:?,#'\"% \n\t@`~"), st.text(max_size=3)), max_size=30)

    def check(*texts):
        path.write_text("".join(piece for text in texts for piece in text), encoding="utf-8", errors="replace")
        read_or_refused(lambda: load_experiment(path, "quick"), path, "fuzzed")

    fuzz(check, count, pieces, pieces)


MARK = {"spec": "0", "inputs": {}}


def table_file(path):
    content = {
        "step_size": [1e-3, np.nan, 1e-2],
        "held_out": pd.array([None, 2, 3], dtype="Int64"),
        "converged": [True, False, True],
        "names": [["mu"], [], ["mu", "log_sigma"]],
    }
    artifact.write_table(path, pd.DataFrame(content), MARK)
    return lambda: artifact.read_table(path)


def array_file(path):
    arrays = {"mu": np.arange(5.0), "done": np.array(3), "empty": np.zeros((0, 3)), "names": np.array(["naive", "cv"])}
    artifact.write_arrays(path, arrays, MARK)
    return lambda: artifact.read_arrays(path)


def checkpoint(path):
    artifact.write_arrays(path, {"done": np.array(3), "leaf0": np.ones((2, 3))}, MARK)
    return lambda: read_checkpoint(path, MARK)


def prepared(path):
    np.savez(path, x=np.ones((4, 2)), y=np.arange(4), meta=np.array('{"format": 1}'))
    return lambda: load(path).arrays


def own_samples(path):
    np.savez(path, samples=np.ones((4, 2)), scores=np.ones((4, 2)), values=np.ones(4))
    return lambda: user._arrays(path)


def study(path):
    content = yaml.safe_load(EXPERIMENTS["variational"])
    tuned = {"solver": {"optimizer": "adam"}, "tune": {"step_size": {"low": 1e-4, "high": 1e-2}}}
    experiment = path.with_name("fuzzed.yaml")
    experiment.write_text(yaml.safe_dump({**content, "methods": {"naive": tuned, "joint": None}}))
    job = Study.load(experiment, "quick").job("run", "breast_cancer", "naive", "jax")
    trials = pd.DataFrame({"number": [0], "step_size": [1e-3], "value": [-1.0], "status": ["ok"]})
    mark = {"spec": job.search.spec.hash, "inputs": {}, "place": job.search.place("study.parquet")}
    artifact.write_table(path, trials, mark)
    return lambda: job.settled({}, path)[0]  # without the hash of the damaged file


FILES = {table_file: "parquet", array_file: "npz", checkpoint: "npz", prepared: "npz", own_samples: "npz",
         study: "parquet"}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize("count", [200, pytest.param(MANY, marks=pytest.mark.long)])
def test_any_bytes(folder, kind, count):
    """Also with other bytes in some place, or one bit changed: what is read is what was written.

    Without a digest a file of other bytes may be another file; a bit is seen there too.
    """
    path = folder / f"a.{FILES[kind]}"
    read = kind(path)
    whole, before = path.read_bytes(), repr(read())

    def check(how, piece, place, cut):
        place %= len(whole)
        bit = bytes([whole[place] ^ 1 << cut % 8])
        path.write_bytes({"only": piece, "bit": whole[:place] + bit + whole[place + 1 :]}.get(
            how, whole[:place] + piece + whole[place + cut :]))  # fmt: skip
        after = read_or_refused(read, path)
        assert after is None or repr(after) == before or (kind in (prepared, own_samples) and how != "bit")

    fuzz(check, count, st.sampled_from(["only"] + ["other"] * 6 + ["bit"] * 3), *PIECES)
