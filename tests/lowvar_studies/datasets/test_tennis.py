import numpy as np

from lowvar_studies.datasets.tennis import COMMIT, Season, tennis

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
FILES = (Season(1970, 0, ""), Season(1971, 0, ""))


def test_selects_and_sorts(tmp_path):
    (tmp_path / "tennis_atp").mkdir()
    for season, rows in zip(FILES, (ONE, TWO), strict=True):
        (tmp_path / season.name).write_text("\n".join([HEADER, *rows]) + "\n", encoding="iso-8859-1")
    table = tennis(tmp_path, seasons=FILES)
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


def test_the_address_is_that_of_the_commit():
    assert len(COMMIT) == 40
