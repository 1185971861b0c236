"""ATP singles matches, a file a season -> who beat whom."""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lowvar_studies.datasets.readers import Table

COMMIT = "0f917b87fe55f6fa2c3db6e846fa70f0be879110"
_COLUMNS = ("winner_name", "loser_name", "score", "tourney_level", "round", "tourney_date")
_UNPLAYED = "RET|W/O|DEF|nbsp|Def."  # as in the reference: the dot matches any character
_ROUNDS = {"R128": 1, "RR": 1, "R64": 2, "R32": 3, "R16": 4, "QF": 5, "SF": 6, "F": 7}


class Season(NamedTuple):
    """One file."""

    year: int
    bytes: int
    sha256: str

    @property
    def name(self) -> str:
        """Path of the file below the folder of raw files."""
        return f"tennis_atp/atp_matches_{self.year}.csv"


def tennis(raw: str | Path, *, seasons: Sequence[Season]) -> Table:
    """Read the seasons' files and select the matches that were played to the end on the main tour.

    Six steps drop, in this order: rows without a winner, a loser or a score; scores of matches that were not completed;
    scores of 4 characters or fewer; challengers, satellites and the Davis Cup (levels C, S and D); rounds other than
    those from R128 to the final; years before 1960. The matches are sorted by the tournament's date and then by round,
    and otherwise keep the files' order. Players are identified by their names as given, and numbered in the order of
    the names' code points. One match of 1974 has "U Unknown" on both sides. No field of the files has a comma.

    Args:
        raw: the folder of raw files, with the bytes that their hashes say.
        seasons: the files, in order.

    Returns:
        ``winner`` (N,) int32 and ``loser`` (N,) int32, counted from 0, and ``players``, their number; the players'
        names are in the notes.

    References:
        Giordano, Ingram and Broderick (2024), Black box variational inference with a deterministic objective: faster,
        more accurate, and even more black box, JMLR 25(18): the selection.
    """
    import pandas as pd

    files = [Path(raw) / season.name for season in seasons]
    text: Any = {"dtype": str, "keep_default_na": False, "encoding": "iso-8859-1", "quoting": csv.QUOTE_NONE}
    m: Any = pd.concat([pd.read_csv(file, usecols=_COLUMNS, **text) for file in files], ignore_index=True)
    given = (~m[["winner_name", "loser_name", "score"]].isin(["", "NA"])).all(axis=1)
    m = m[given & ~m["score"].str.contains(_UNPLAYED) & (m["score"].str.len() > 4)]
    m = m[~m["tourney_level"].isin(["C", "D", "S"]) & m["round"].isin(_ROUNDS)]
    m = m.assign(date=m["tourney_date"].astype(int), rank=m["round"].map(_ROUNDS))
    m = m[m["date"] >= 1960_01_01].sort_values(["date", "rank"], kind="stable")
    names = sorted({*m["winner_name"], *m["loser_name"]})
    number = {name: i for i, name in enumerate(names)}
    arrays = {
        "winner": m["winner_name"].map(number).to_numpy(np.int32),
        "loser": m["loser_name"].map(number).to_numpy(np.int32),
        "players": np.array(len(names), dtype=np.int64),
    }
    return Table(arrays, notes={"players": names})


SEASONS = (
    Season(1968, 565819, "c932496e3c3c8e8e8c97c2f8403c9e54b0a0d7966bf32e149051138973c77cbf"),
    Season(1969, 494788, "3f67c7c5c1e35479c1030cf03839613133948bb16f11d21e3ec6eaa7d9f00345"),
    Season(1970, 512410, "4de43ab8539a6de62622ddfc13f74ad547cd059be81873b18c329791b91bb1ea"),
    Season(1971, 566988, "0e3d1e8bccc0932350be31e33231a475030357edd4774154055be19a4cc95a5c"),
    Season(1972, 563874, "fd204dc66028428f72c3c73f80bc491a848caa521f0651c08bd6a6f3165f1d96"),
    Season(1973, 672051, "5d741f3e3599d8c1a51903ce17fbf9098086035ee47d91401a3ead48de28ca6e"),
    Season(1974, 671359, "62bedf9e5cbed83f8ba5644eb83b4e3b1dee1af992feace70548c172d27f868f"),
    Season(1975, 665073, "cb16bcd7c9446bcdca083c66bf5a2c958a4f4b81300d5b4fba4dc316ad542db2"),
    Season(1976, 623652, "a9d4ecb7eefe8d0cba84bd213c7af24b0fd42b1836e56f1c4b7d1b2fb09443c7"),
    Season(1977, 658101, "b54f4e514b0eb365fdafe5a4827d9fe146e5ef8b0e13cf14574e48ad0c21bfed"),
    Season(1978, 614867, "7955bea29dd6c4ee81b74f85f372425354c9fbc96fec6f66224165e372a971c1"),
    Season(1979, 632805, "43a17fe1a399135a0f3227f88fedc8b61e0f9157400d559c218dd2fb918b168b"),
    Season(1980, 640005, "53a287e4de0fadef2d62c9a59fbcfb5cf240e4895d1dd2f6ee7bae5fd0dc67f2"),
    Season(1981, 625920, "c3788311ebbfec480dab2f1bd605bef246a7b08370a5ffa89404065256b555c7"),
    Season(1982, 655284, "5542264542e6e0f088ad8e40f7d2e9a92c2a4ee56e8afba46c368d46628f0ebf"),
    Season(1983, 563037, "2e717cf01f6e24d1628a878f67a1d0bf5351dd0e2872517a7e73c69d5dc80c19"),
    Season(1984, 531047, "3ae9206dfc13562893a653d29295df702fc83b039cce9a7c66249300311f8d03"),
    Season(1985, 558217, "fe42eedfbf17d8af2f6f73b5a251b3abb5ef79f5baaf376250a6f2f297417fe7"),
    Season(1986, 533956, "cfdbb5d8253edf3c81325047096f296d85306026d57524e86f84f1dd879e5054"),
    Season(1987, 583360, "4f8c2947b0ae305d9afbedad7ae44b82ce426cd5d5b8b2835778073fd721febb"),
    Season(1988, 615887, "7da1eb2691c5a992648529f89d6564a685baf7150d37a0143d5599a9f3f48fd7"),
    Season(1989, 592902, "f059a3423e2bb986215311a2ec9cac3f4bab9a76bd1167be711de37470d977e9"),
    Season(1990, 630930, "4c65abf16c98f1a96634bdc464961f058555677539203cd23b50031155fa037c"),
    Season(1991, 743040, "8366632e1d874fcfb700017d8ff8bf59fe05e25e44ca86dfcfb314a198d303a0"),
    Season(1992, 760047, "b2ede0ff352a34e59b9cdc0e2a7c9af764a6fe6ac7326a09c4c923f5736b7922"),
    Season(1993, 779727, "ad841411059f2cd753ec672052db38ddfc916c87d9db33c94bc7338f733c9676"),
    Season(1994, 787905, "cf989080b15fdc1376da96172613f93337ddbc316ce63feb05220f344d5a2dc9"),
    Season(1995, 762356, "bcfbbf40c5c774167a7a3e8e821e64368b83e58cbf736924d401e6a7edea4b27"),
    Season(1996, 757131, "ef8fab3af019de1a3d38d63b235dcf424d0e93f0c8c9947c915e258e899a0b92"),
    Season(1997, 730302, "d3eebf2e646a25e97e812f1feece2a4afc14651debef6ce183b44b0aa3a7a3ef"),
    Season(1998, 725045, "207e9d5d76f7bd0bdfdeb1de1c0272352a3f885e698ed10c3d3054bd0ad31593"),
    Season(1999, 673043, "0f618bc71d71b11ad9396b3506e86a665c86b37b220dd9a0edae5453f57d519f"),
    Season(2000, 680357, "a2176b0d9e70f238536d0a2d0957bc54dc1bfbfb47c368d8f3cbe28457b5ebe4"),
    Season(2001, 669112, "b07bcb7e7239fb451eae6b4e99ef9a0c892083a21185405c8627d5edc9a113be"),
    Season(2002, 649377, "6dbff3e670a576f5f8a0586dc67ffd9394bb9dd87ba964f98d11029303e544ce"),
    Season(2003, 649296, "387a1dec62d014fdf5c7dc83329b87c3a4041fc4ebf8a25b19352c82d1f67c31"),
    Season(2004, 662757, "79251fec7d9751ea2eebb005a962f69fea466f827172d53f47b381aac53634af"),
    Season(2005, 659963, "7ab77584b319b65830d4b5c988cf8349d14a7a4e867633e9717801f8d9b97b27"),
    Season(2006, 660698, "c7f28866e127c665072ed6e4a8fc5812cd82f804660fbdd37e8b00063d1b8f53"),
    Season(2007, 644456, "d392402109561d6d3e19fd41dc8cc3a3f72ccb52d3988edbe7c18cc47b603db0"),
    Season(2008, 631443, "0df26c39db9d28b762f9c9f8d48a59af2bfc68302a45230b9a0236c076e4dff0"),
    Season(2009, 626694, "71053c10b4b4930deb0468020f741ee86969ae60cb3f716e2c3135c6d639887c"),
    Season(2010, 614299, "135a4a1e2ab69c33318b6e5ad59efc67cc5358629b15bf28fb2f905d48f7aeb0"),
    Season(2011, 611934, "eddf7c46f508932f071bd8ddd779ca29949291a2233d092656054f612611c241"),
    Season(2012, 610104, "9db62e0e32a5763cf51bcda01b98e2a473d95e04778c53a4f0d58d4ad0383d12"),
    Season(2013, 596711, "d6373226439ae46680529e55a0fa5b82d6c4e977581ba8d80798a3204121e9fb"),
    Season(2014, 589229, "0f952135a032f171810a913be8b6eed195d0ebd561ecdd647d907f3fec623c32"),
    Season(2015, 594411, "21db5a7d16f783c80d322b96f4196fa406ec42a9880ae8439de543a12a77563a"),
    Season(2016, 617639, "c5823058a83b5ef110de475fadcb2fb1b9ae5eef479f1d8fb420bb9da7430e59"),
    Season(2017, 611335, "2bcd55b3eb6c8cbdd395bad7e9fbc788ec4101099e6b1e84e9301ebed451d7fc"),
    Season(2018, 608832, "b452c378603e7db46cbf51ca1a3ccfd02bcbd7074bd29bb6922ba401d8623273"),
    Season(2019, 586038, "2a12cc4a18f46da3fbfcfb223d6e4ebd0548cbe5742d67cc1423a51c45855561"),
    Season(2020, 307237, "4d29b7506a664b0e30070ae45ebc0170231aa866c34d08756ea2c6cb8f15b4a5"),
    Season(2021, 572975, "68afaea11bbd5867b08b84fb720798efff6462ff2a398b8e8060711ea282247e"),
    Season(2022, 608203, "fd971b99819d431d0df28c211341dfedae060eec14290b55db7829b69afbb542"),
    Season(2023, 150398, "78f9c32317ad0e09974f52880c539f6607505d07e761f8e82eca22e21da498ba"),
)
