"""Tables are declared once: made lazily, in the declared columns, where an experiment has them."""

import dataclasses
from types import SimpleNamespace

import pandas as pd
import pytest

from lowvar_studies.jobs.load import FAMILIES
from lowvar_studies.reports.declarations import Table, columns, names_of
from lowvar_studies.reports.gathered import Gathered

ONE = columns("name | string | | its own", "mean.. | float64 | nats | the mean", "n | int64? | | how many")


def study(tables=(), **experiment):
    read = []

    def table(name):
        read.append(name)
        return pd.DataFrame({"name": [f"{name} of a file"]})

    return SimpleNamespace(experiment=SimpleNamespace(tables=tables, **experiment), table=table, read=read)


def test_a_table_has_the_declared_columns_in_their_order():
    table = Table("t", "", ONE, lambda gathered: [])
    made = table.frame([{"n": 1, "other": 0, "low": 0.0, "high": 2.0, "mean": 1.0, "name": "a"}])
    assert list(made) == ["name", "mean", "low", "high", "n"]
    empty = table.frame([])
    assert empty.dtypes.to_dict() == made.dtypes.to_dict()
    with pytest.raises(KeyError, match="mean"):
        table.frame([{"name": "a"}])


TIMES = []
NAME = columns("name | string | | its own")
TABLES = (
    Table("base", "", NAME, lambda gathered: TIMES.append("base") or [{"name": "made"}]),
    Table("above", "", NAME, lambda gathered: gathered["base"].assign(name=lambda t: t["name"] + "!")),
    Table("evidence", "", NAME, lambda gathered: gathered["base"], kept=False),
    Table("seconds", "", NAME, lambda gathered: gathered["base"], timed=True),
    Table("never", "", NAME, lambda gathered: gathered["base"], when=lambda experiment: experiment.more),
    Table("broken", "", NAME, lambda gathered: {}["a mistake of its own"]),
)


def test_tables_are_made_once_and_when_asked_for():
    TIMES.clear()
    place = study(more=False)
    gathered = Gathered(place, TABLES)
    assert not TIMES
    assert gathered["above"]["name"].tolist() == ["made!"]
    assert gathered["evidence"]["name"].tolist() == gathered["seconds"]["name"].tolist() == ["made"]
    assert TIMES == ["base"]
    assert not place.read
    assert list(gathered) == ["base", "above", "evidence", "broken"]
    assert names_of(TABLES, place.experiment) == ("base", "above", "broken")


def test_wall_times_are_known_by_their_declaration_whatever_their_name():
    clock = (*TABLES[:3], dataclasses.replace(TABLES[3], name="clock"))
    assert names_of(clock, None, timed=True) == ("clock",)
    drawn = {"slow": SimpleNamespace(table="clock", when=lambda experiment: True),
             "fast": SimpleNamespace(table="seconds", when=lambda experiment: True)}  # fmt: skip
    family = dataclasses.replace(FAMILIES["search"], tables=clock, figures=drawn)
    assert list(family.figures_of(SimpleNamespace())) == ["slow"]


def test_for_claims_and_seconds_tables_are_read_from_their_files():
    place = study(more=True)
    gathered = Gathered(place, TABLES, made=False)
    assert gathered["evidence"]["name"].tolist() == gathered["seconds"]["name"].tolist() == ["base of a file"]
    assert gathered["never"]["name"].tolist() == ["never of a file"]
    assert place.read == ["base", "never"]


def test_a_table_that_is_not_there_is_told_from_a_mistake_of_its_maker():
    gathered = Gathered(study(more=False), TABLES)
    assert gathered.get("never") is None
    assert "never" not in gathered
    with pytest.raises(KeyError, match="never"):
        gathered["never"]
    with pytest.raises(KeyError, match="a mistake of its own"):
        gathered.get("broken")
