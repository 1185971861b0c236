"""The engine of integrals: rows for every size, repetition and task, whatever is interrupted, refused or grouped."""

import numpy as np
import pytest

from lowvar.core import artifact, loop
from lowvar.errors import UserError
from lowvar.integrals.base import IntegralProperties, Integrals, Integrator, Samples, make
from lowvar_studies.jobs.integral import samples
from lowvar_studies.jobs.integral.engine import IntegralEngine

SIZES = [(4, 4), (9, 6)]
MARK = artifact.stamp("0" * 16, {})


def drawn(tmp_path, repetitions=5, shared=False):
    rng = np.random.default_rng(0)
    points = tuple(rng.normal(size=(repetitions, m, 2)) for m in (9, 6))
    points = (points[0], points[0]) if shared else points
    made = Samples(points, tuple(-x for x in points), tuple(x.sum(-1) + t for t, x in enumerate(points)), shared=shared)
    truth = [{"task": name, "truth": 0.0, "truth_error": 0.0, "how": ""} for name in "ab"]
    about = {"tasks": ("a", "b"), "groups": [[0], [1]], "truth": truth}
    artifact.write_arrays(tmp_path / "samples.npz", samples.arrays(made, about), MARK)
    return made, samples.read(tmp_path / "samples.npz")


def averaging(calls=None, transfers=False, fewest=0):
    def integrate(given, seeds):
        if calls is not None:
            calls.append((given.tasks, given.repetitions, given.sizes))
        if given.sizes[0] < fewest:
            raise UserError("too few")
        value = np.stack([v.mean(axis=1) for v in given.values], axis=1)
        flags = {"few_points": value[:, 0] > 0}
        return Integrals(value, np.abs(value), np.full(len(value), 2.0), flags, {"scale": value[:, :1]})

    return Integrator("averaging", IntegralProperties(transfers=transfers), integrate)


def engine(tmp_path, integrator, **more):
    _, found = drawn(tmp_path, **more)
    return IntegralEngine(integrator, found, SIZES, 5, 2, np.arange(5))


def test_rows(tmp_path):
    made, _ = drawn(tmp_path)
    result = loop.complete(engine(tmp_path, averaging()))
    trace = result.trace
    assert len(trace) == 2 * 5 * 2
    assert trace["sizes"].unique().tolist() == ["4", "9/6"]
    row = trace[(trace["sizes"] == "9/6") & (trace["repetition"] == 3) & (trace["task"] == "b")].iloc[0]
    assert (row["m"], row["points"], row["status"]) == (6, 15, "ok")
    assert row["value"] == pytest.approx(made.values[1][3].mean(), rel=1e-12)
    assert (trace.loc[trace["flags"] == "few_points", "status"] == "ok").all()
    assert set(trace["flags"]) == {"", "few_points"}
    assert result.params["scale"].shape == (2, 5, 1)
    assert result.params["scale"][1, 4, 0] == pytest.approx(made.values[0][4].mean(), rel=1e-12)
    assert result.timing["repetitions"].tolist() == [2, 4, 5, 2, 4, 5]


def test_groups_only_for_methods_that_transfer(tmp_path):
    for transfers, tasks in ((False, 2), (True, 1)):
        calls = []
        loop.complete(engine(tmp_path, averaging(calls, transfers)))
        assert {call[0] for call in calls} == {tasks}


def test_a_size_that_is_refused_is_a_row(tmp_path):
    trace = loop.complete(engine(tmp_path, averaging(fewest=5))).trace
    small = trace["sizes"] == "4"
    assert (trace.loc[small, ["status", "flags"]] == ["failed", "refused"]).all(axis=None)
    assert (trace.loc[~small, "status"] == "ok").all()
    with pytest.raises(UserError, match="too few"):
        loop.complete(engine(tmp_path, averaging(fewest=20)))


class Killed(Exception):
    pass


LONG = {"vector_valued": {"steps": 20}, "control_functional": {"steps": 20}, "alternating": {"steps": 20},
        "convex": {"steps": 20, "deltas": [1.0, 0.1]}, "neural": {"steps": 5}}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("zero_variance", {"order": 1}),
        ("paper_vv", {"epochs": 3, "tuning_epochs": 1}),
        *(pytest.param(*one, marks=pytest.mark.long) for one in LONG.items()),
    ],
)
def test_a_killed_run_has_the_same_bytes_where_repetitions_are_no_multiple_of_the_chunk(name, options, tmp_path):
    """All chunks have the same shapes, the last one too, whatever has been done before."""
    rng = np.random.default_rng(1)
    points = tuple(rng.normal(size=(5, m, 2)) for m in (9, 8))
    values = tuple(np.exp(0.5 * x[..., 0]) + (1 + t) * np.sin(x[..., 1]) for t, x in enumerate(points))
    about = {"tasks": ("a", "b"), "groups": None, "truth": []}
    drawn = samples.arrays(Samples(points, tuple(-x for x in points), values), about)
    artifact.write_arrays(tmp_path / "samples.npz", drawn, MARK)
    found, integrator, shapes = samples.read(tmp_path / "samples.npz"), make(name, options), []

    def integrate(given, seeds):
        shapes.append((given.repetitions, len(seeds)))
        return integrator.integrate(given, seeds)

    def engine():
        watched = Integrator(name, integrator.properties, integrate)
        return IntegralEngine(watched, found, [(8, 8), (9, 8)], 5, 2, 3 + np.arange(5))

    def kill(count):
        done.append(count)
        if len(done) > after:
            raise Killed

    whole, path = loop.complete(engine()), tmp_path / "checkpoint.npz"
    for after in (2, 5):  # what is left: the short chunk of the first size and all of the second, or the last chunk
        done = []
        path.unlink(missing_ok=True)
        with pytest.raises(Killed):
            loop.complete(engine(), progress=kill, checkpoint=path, mark=MARK, every=0.0)
        before = len(shapes)
        again = loop.complete(engine(), checkpoint=path, mark=MARK, every=0.0)
        assert len(shapes) - before == 6 - after  # it went on
        assert again.trace.equals(whole.trace)
        assert again.params.keys() == whole.params.keys()
        assert all(array.tobytes() == again.params[name].tobytes() for name, array in whole.params.items())
    assert set(shapes) == {(2, 2)}


@pytest.mark.parametrize(
    ("repetitions", "most", "chunk", "chunks"), [(5, 2, 2, 3), (26, 25, 13, 2), (3, 25, 3, 1), (7, 1, 1, 7)]
)
def test_chunks_are_alike_and_hardly_padded(tmp_path, repetitions, most, chunk, chunks):
    calls = []
    _, found = drawn(tmp_path, repetitions)
    runs = IntegralEngine(averaging(calls), found, [(9, 6)], repetitions, most, np.arange(repetitions))
    result = loop.complete(runs)
    assert calls == [(2, chunk, (9, 6))] * chunks
    assert len(result.trace) == 2 * repetitions
    alone = IntegralEngine(averaging(), found, [(9, 6)], repetitions, 1, np.arange(repetitions))
    np.testing.assert_allclose(result.trace["value"], loop.complete(alone).trace["value"], rtol=1e-12, atol=1e-14)


def test_samples_are_stored_once_and_read_back(tmp_path):
    made, found = drawn(tmp_path, shared=True)
    assert found.samples.shared
    assert np.array_equal(found.samples.points[1], made.points[0])
    with np.load(tmp_path / "samples.npz") as stored:
        assert "points_1" not in stored.files
    assert found.within(["b"]).tasks == ("b",)
    assert np.array_equal(found.within(["b"]).samples.values[0], made.values[1])
    with pytest.raises(UserError, match="unknown task 'c'"):
        found.within(["c"])
