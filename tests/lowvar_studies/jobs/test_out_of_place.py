"""Whole files in the place of others, and published files that were edited: none is believed."""

import itertools
import shutil

import numpy as np
import pytest
import yaml
from projects import LITTLE

from lowvar.core import artifact
from lowvar.core.files import sha256
from lowvar.errors import UserError
from lowvar_studies.jobs import commands
from lowvar_studies.jobs.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small search experiment, all of it made."""
    folder = tmp_path_factory.mktemp("made")
    methods = {"one": {"solver": "fast_ingo"}, "same": {"solver": "fast_ingo"}}
    content = {"name": "little", **LITTLE, "methods": methods}
    (folder / "little.yaml").write_text(yaml.safe_dump(content))
    study = Study.load(folder / "little.yaml", "quick", folder / "results", folder / "data")
    for job in study.jobs():
        commands.run(job)
    commands.tables(study)
    commands.tables(study, seconds=True)
    commands.figures(study)
    commands.claims(study)
    return study


@pytest.fixture
def study(whole, tmp_path):
    shutil.copytree(whole.path.parent, tmp_path / "copy")
    return Study.load(tmp_path / "copy/little.yaml", "quick", tmp_path / "copy/results", tmp_path / "copy/data")


def stamped(study):
    return sorted(path for path in study.results.rglob("*") if path.suffix in (".parquet", ".npz"))


def read_all(study):
    """All that tables, figures and claims read."""
    for job in study.jobs("run"):
        for path in (*job.outputs, *job.records):
            if path.suffix != ".json":
                job.read(path.name, artifact.read_arrays if path.suffix == ".npz" else artifact.read_table)
    for name in (*study.tables, *study.timed):
        study.table(name)
    return commands.check(study)


def said_of(study):
    """The sentence of the reader that refuses a file, or those of ``make check``."""
    try:
        return " ".join(read_all(study))
    except UserError as error:
        return str(error)


@pytest.mark.long
def test_any_file_in_the_place_of_any_other(study):
    """Tables of one experiment, a wall time in place of a trace, a job's file in that of another with equal settings."""
    tried = 0
    assert read_all(study) == []
    for path, other in itertools.permutations(stamped(study), 2):
        if path.suffix == other.suffix:
            kept = path.read_bytes()
            shutil.copy(other, path)
            assert study.place(path) in said_of(study), (path, other)
            path.write_bytes(kept)
            tried += 1
    assert tried > 50
    assert read_all(study) == []


def test_a_damaged_file_is_found(study):
    for path in stamped(study):
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        assert path.name in said_of(study), path
        path.write_bytes(whole)


def test_equal_settings_of_another_experiment_are_the_same_run(study, tmp_path):
    """A trace may move with its folder: its place is that among its own results."""
    other = Study.load(study.path, "quick", tmp_path / "elsewhere", study.data)
    shutil.copytree(study.results, other.results)
    assert read_all(other) == []


def test_a_file_without_its_place_is_refused(study):
    """As earlier versions wrote them."""
    job = next(iter(study.jobs("run")))
    mark = artifact.verified_stamp(job.outputs[0])
    table = artifact.read_table(job.outputs[0])
    artifact.write_table(job.outputs[0], table, {key: one for key, one in mark.items() if key != "place"})
    with pytest.raises(UserError, match=r"place.*lowvar run"):
        job.read("trace.parquet")


def test_results_of_another_version_are_named(study):
    job = next(iter(study.jobs("run")))
    mark = artifact.verified_stamp(job.outputs[0])
    mark["versions"]["lowvar"] = "0.0.7"
    artifact.write_table(job.outputs[0], artifact.read_table(job.outputs[0]), mark)
    with pytest.warns(UserWarning, match=r"0\.0\.7"):
        job.read("trace.parquet")


def published(study):
    return sorted(
        path for path in study.results.rglob("*") if path.suffix in (".csv", ".svg", ".png") or path == study.metrics
    )


def test_a_figure_of_an_older_table_is_found(study):
    """The table is made anew from other rows, with its csv: its figures are those of the former one."""
    kind, drawn = next(iter(study.figures.items()))
    (path,), (csv,) = study.table_files(drawn.table), study.table_files(drawn.table, ending="csv")
    mark, table = artifact.verified_stamp(path), artifact.read_table(path)
    newer = table.iloc[::-1].reset_index(drop=True)
    csv.write_text(newer.to_csv(index=False, float_format="%.8g"))
    beside = mark["beside"] | {study.place(csv): sha256(csv)}
    artifact.write_table(path, newer, {key: one for key, one in mark.items() if key != "digest"} | {"beside": beside})
    found = [one for one in commands.check(study) if f"figure {kind}" in one]
    assert found
    assert str(study.figure_files(kind)[0]) in found[0]
    assert study.place(path) in found[0]
    commands.figures(study, kind)
    assert not [one for one in commands.check(study) if f"figure {kind}" in one]


def test_an_edited_digit_is_found(study):
    """In tables, figures, the rows beside them, claims and headline numbers; also a file that is gone, or cut off."""
    assert len(published(study)) >= 7
    for path in published(study):
        kept = path.read_bytes()
        place = next((i for i, byte in enumerate(kept) if chr(byte).isdigit() and i > len(kept) // 2), len(kept) // 2)
        for other in (kept[:place] + bytes([kept[place] ^ 1]) + kept[place + 1 :], kept[:-1], b"", kept + b"\n", None):
            path.unlink() if other is None else path.write_bytes(other)
            found = commands.check(study)
            assert found, path
            assert "lowvar " in found[0].split(" with: ")[1]
            path.write_bytes(kept)
        path.write_bytes(kept)
    assert commands.check(study) == []


def test_rows_of_another_method_or_without_a_column_are_refused(study):
    """With a right stamp, as another version of lowvar may have written them."""
    job = next(iter(study.jobs("run")))
    file = job.outputs[0]
    table, mark = artifact.read_table(file), artifact.verified_stamp(file)
    for changed, said in ((table.assign(method="other"), "method"), (table.drop(columns="best"), "best")):
        artifact.write_table(file, changed, mark)
        with pytest.raises(UserError, match=said):
            study.gather("run", "trace.parquet")


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])
def test_any_forged_checkpoint_is_discarded(study, tmp_path, every):
    """With the right stamp and digest: the run starts again, and ends with the same bytes."""
    job = next(iter(study.jobs("run")))
    whole = job.outputs[0].read_bytes()
    engine = study.family.engine(job.settled()[0], None)
    state = engine.init()
    right = {"done": np.array(0), "laps": np.zeros(1), "clock": np.zeros(2)}
    right |= {f"leaf{i}": leaf for i, leaf in enumerate(engine.flatten(state))}
    measured = {f"measured_{name}": np.array([one]) for name, one in engine.measure(state, 0).items()}
    mark = {**artifact.verified_stamp(job.outputs[0]), "place": job.place("checkpoint.npz")}
    name = next(iter(measured))
    forged = [
        {"done": np.array(10**18)}, {"done": np.array(-1)}, {"done": np.zeros(3, int)}, {"done": np.array("x")},
        {"done": np.array(np.nan)}, {"laps": np.zeros(7)}, {"laps": np.zeros((1, 1))}, {"laps": np.array(["a"])},
        {"clock": np.zeros(3)}, {name: measured[name][:0]}, {"leaf0": np.zeros((2, 2), complex)},
    ]  # fmt: skip
    forged += [{one: None} for one in ("leaf0", "done", "clock", "laps")]
    for change in forged[::every]:
        arrays = {key: one for key, one in {**right, **measured, **change}.items() if one is not None}
        artifact.write_arrays(tmp_path / "out/checkpoint.npz", arrays, mark)
        assert commands.run(job, out=tmp_path / "out").read_bytes() == whole, change
        assert not (tmp_path / "out/checkpoint.npz").exists()
