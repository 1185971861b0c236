import numpy as np
import pytest

from lowvar.datasets.tennis import COMMIT, LEFT, PLAYERS, SEASONS, Season, tennis
from lowvar.errors import UserError

HEADER = "tourney_id,tourney_level,tourney_date,winner_name,loser_name,score,round"
ONE = [
    "1,A,19700601,Bea,Ann,6-1 6-1,F",
    "1,A,19700601,Bea,Cid,6-1 6-1,R128",
    "1,A,19700601,Ann,Cid,6-1 6-1,RR",  # of the same rank as R128: stays behind it
    "1,A,19700601,Bea,,6-1 6-1,F",
    "1,A,19700601,Bea,Cid,NA,F",
    "1,A,19700601,Bea,Cid,6-1 RET,F",
    "1,A,19700601,Bea,Cid,Default,F",
    "1,A,19700601,Bea,Cid,6-1,F",
    "1,D,19700601,Bea,Cid,6-1 6-1,F",
    "1,A,19700601,Bea,Cid,6-1 6-1,BR",
    "1,A,19591231,Bea,Cid,6-1 6-1,SF",
]
TWO = [
    "2,G,19700101,José,Bea,6-1 6-1,QF",
    "2,G,19700101,Ann,José,6-1 6-1,R16",
]
FILES = (Season(1970, 0, "", 11, 3), Season(1971, 0, "", 2, 2))
COUNTS = (11, 9, 8, 7, 6, 5)


def read(folder, one=ONE, two=TWO, header=HEADER, left=COUNTS, players=4, seasons=FILES):
    (folder / "tennis_atp").mkdir(exist_ok=True)
    for season, rows in zip(seasons, (one, two), strict=True):
        text = "\n".join([header, *rows]) + "\n"
        (folder / season.name).write_text(text, encoding="iso-8859-1")
    return tennis(folder, seasons=seasons, left=left, players=players)


def test_selects_and_sorts(tmp_path):
    table = read(tmp_path)
    names = table.notes["players"]
    assert names == ["Ann", "Bea", "Cid", "José"]
    found = [(names[w], names[l]) for w, l in zip(table.arrays["winner"], table.arrays["loser"], strict=True)]
    assert found == [("Ann", "José"), ("José", "Bea"), ("Bea", "Cid"), ("Ann", "Cid"), ("Bea", "Ann")]
    assert {key: (array.dtype, array.shape) for key, array in table.arrays.items()} == {
        "winner": (np.int32, (5,)),
        "loser": (np.int32, (5,)),
        "players": (np.int64, ()),
    }
    assert int(table.arrays["players"]) == 4
    assert table.names == ()


def test_the_published_counts():
    assert (LEFT[-1], PLAYERS, len(SEASONS)) == (169405, 5524, 56)
    assert sum(season.matches for season in SEASONS) == 169405
    assert sum(season.rows for season in SEASONS) == 188884
    assert [season.year for season in SEASONS] == list(range(1968, 2024))


def changed(rows, i, old, new):
    assert old in rows[i]
    return [row.replace(old, new) if j == i else row for j, row in enumerate(rows)]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"one": [*ONE, ONE[0]]}, r"atp_matches_1970\.csv: found 12 rows below the header; it should have 11: use"),
        ({"two": TWO[:1]}, r"atp_matches_1971\.csv: found 1 rows below the header; it should have 2"),
        (
            {"two": changed(TWO, 1, "R16", "ER")},
            r"atp_matches_1971\.csv: found 1 matches after the selection; it should have 2 \(the first count that "
            r"differs over all seasons: rounds R128, RR, .*\): use the file of commit 0f917b87 of JeffSack",
        ),
        ({"one": changed(ONE, 5, "6-1 RET", "6-1 6-1")}, r"1970\.csv: found 4 matches .* differs.*: matches played to"),
        ({"one": changed(ONE, 7, "6-1", "6-1 6")}, r"1970\.csv: found 4 matches .* differs.*: scores of more than 4"),
        ({"one": changed(ONE, 3, "Bea,", "Bea,Ann")}, "1970.* differs over all seasons: rows with a winner"),
        (
            {"one": changed(ONE, 8, "1,D", "1,S"), "left": (11, 9, 8, 7, 7, 5)},
            r"1970\.csv and the other seasons: found 6 matches left after the step 'rounds R128, RR, .*'; there should "
            "be 7",
        ),
        ({"one": changed(ONE, 0, "Bea", "Bo")}, r"and the other seasons: found 5 players; there should be 4: use the"),
        ({"header": HEADER.replace("score", "result")}, r"1970\.csv, line 1: found no column score"),
        ({"header": ""}, r"1970\.csv, line 1: found no column winner_name"),
        ({"one": changed(ONE, 4, "Bea,", "Bea,x,")}, r"1970\.csv, line 6: found 8 fields; a row should have 7"),
        (
            {"two": changed(TWO, 1, "19700101", "1970-1-1")},
            r"1971\.csv, line 3, column 3 \(tourney_date\): found '1970-",
        ),
        ({"two": changed(TWO, 1, "19700101", "")}, r"1971\.csv, line 3, column 3 \(tourney_date\): found ''"),
    ],
)
def test_files_of_another_commit_and_malformed_ones(tmp_path, bad, message):
    with pytest.raises(UserError, match=message) as caught:
        read(tmp_path, **bad)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_season(tmp_path):
    with pytest.raises(UserError, match=r"cannot read .*atp_matches_1970\.csv: No such file"):
        tennis(tmp_path, seasons=FILES, left=COUNTS, players=4)


def test_the_address_is_that_of_the_commit():
    assert len(COMMIT) == 40
