"""Whatever a file holds, a reader returns its content or refuses it in one sentence that names it."""

import copy
import random

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lowvar import datasets
from lowvar.datasets import readers
from lowvar.errors import UserError
from lowvar.runs import artifact
from lowvar.studies import claims
from lowvar.studies.load import load_experiment

COUNTS = [100, pytest.param(100_000, marks=pytest.mark.long)]
WORDS = (
    "naive",
    "joint",
    "adam",
    "../x",
    "a b",
    "",
    "1e-3",
    "nan",
    "breast_cancer",
    "module:function",
    "x" * 300,
    "\x7f",
)
NUMBERS = st.one_of(
    st.integers(-3, 10),
    st.integers(),
    st.floats(),
    st.sampled_from([10**30, -1, 0, 1e-320, float("nan"), float("inf")]),
)
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
        name: fuzzed
        title: Fuzzed
        family: search
        problems: {ellipsoid: {function: ellipsoid, dim: 5}}
        methods: {fast_ingo: null, pycma: {options: {}}}
        search: {budget: 300, repetitions: 2}
        """,
    "integral": """
        name: fuzzed
        title: Fuzzed
        family: integral
        problems: {borehole: {problem: borehole, sizes: [10]}}
        methods: {monte_carlo: null, vector_valued: null}
        estimation: {repetitions: 3}
        """,
}
CLAIMS = """
- id: less
  statement: Less variance.
  source: Table 1
  test: {effect: variance_ratio, problem: breast_cancer, method: joint, others: [naive, cv], below: 1}
"""


def fuzz(check, count, *strategies):
    """Calls ``check`` with ``count`` examples, the same in every run."""
    quiet = settings(
        max_examples=count, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    quiet(given(*strategies)(check))()


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


def read_or_refused(read, path, where=None):
    try:
        return read()
    except UserError as error:
        said = str(error)
    assert "\n" not in said, said
    assert str(where or path) in said, said
    return None


@pytest.mark.parametrize("family", EXPERIMENTS)
@pytest.mark.parametrize("count", COUNTS)
def test_experiments(tmp_path, family, count):
    path, whole = tmp_path / "fuzzed.yaml", yaml.safe_load(EXPERIMENTS[family])
    path.write_text(yaml.safe_dump(whole))
    assert load_experiment(path, "quick").name == "fuzzed"

    def check(junk, seed):
        path.write_text(yaml.safe_dump(mutated(whole, junk, seed), allow_unicode=True), encoding="utf-8")
        read_or_refused(lambda: load_experiment(path, "quick"), path, "fuzzed")

    fuzz(check, count, JUNK, SEEDS)


@pytest.mark.parametrize("count", COUNTS)
def test_claims(tmp_path, count):
    path, whole = tmp_path / "fuzzed.yaml", yaml.safe_load(CLAIMS)
    path.write_text(CLAIMS)
    assert claims.load(path)[0].id == "less"

    def check(junk, seed):
        path.write_text(yaml.safe_dump(mutated(whole, junk, seed), allow_unicode=True), encoding="utf-8")
        read_or_refused(lambda: claims.load(path), path)

    fuzz(check, count, JUNK, SEEDS)


@pytest.mark.parametrize("count", COUNTS)
def test_any_text_as_yaml(tmp_path, count):
    path = tmp_path / "fuzzed.yaml"
    pieces = st.lists(st.one_of(st.sampled_from("{}[]&*!|>-:?,#'\"% \n\t@`~"), st.text(max_size=3)), max_size=30)

    def check(text):
        path.write_text("".join(text), encoding="utf-8", errors="replace")
        read_or_refused(lambda: load_experiment(path, "quick"), path, "fuzzed")

    fuzz(check, count, pieces)


READERS = {
    "parquet": (artifact.read_table, b"PAR1"),
    "artifact.npz": (artifact.read_arrays, b"PK\x03\x04"),
    "prepared.npz": (datasets.load, b"PK\x03\x04"),
}


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize("count", COUNTS)
def test_any_bytes(tmp_path, kind, count):
    read, magic = READERS[kind]
    path = tmp_path / f"a.{kind}"

    def check(content, begins, ends):
        path.write_bytes((magic if begins else b"") + content + (magic if ends else b""))
        assert read_or_refused(lambda: read(path), path) is None

    fuzz(check, count, st.binary(max_size=200), st.booleans(), st.booleans())


@pytest.mark.parametrize("count", COUNTS)
def test_a_table_of_text(tmp_path, count):
    path, whole = tmp_path / "a.csv", "0.5,2,yes\n-1,3e2,no\n1,1,no\n"
    options = {"separator": ",", "columns": ["u", "v"], "labels": {"no": 0, "yes": 1}, "rows": 3}

    def check(place, piece, cut):
        place %= len(whole)
        path.write_bytes((whole[:place] + piece + whole[place + cut :]).encode("utf-8", "replace"))
        table = read_or_refused(lambda: readers.table(tmp_path, "a.csv", **options), path)
        assert table is None or (table.arrays["x"].shape == (3, 2) and np.isfinite(table.arrays["x"]).all())

    fuzz(check, count, st.integers(0, 100), st.text(max_size=4), st.integers(0, 3))
