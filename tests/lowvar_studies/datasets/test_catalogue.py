import re
from pathlib import PurePosixPath

import pytest

from lowvar.errors import UserError
from lowvar_studies.datasets.catalogue import DATASETS
from lowvar_studies.datasets.prepare import SCALINGS, prepare

FILES = [file for dataset in DATASETS.values() for file in dataset.files]

NOT_HTTPS = ("fashion-mnist/",)  # its server speaks http alone


def test_entries_are_complete():
    for name, one in DATASETS.items():
        assert one.name == name
        assert all((one.title, one.licence, one.citation))
        assert set(one.scalings) <= set(SCALINGS)
        assert ("unit" in one.scalings) == (one.image is not None)
        with pytest.raises(UserError, match=f"dataset {name} .*scaling"):
            prepare(name, ({*SCALINGS} - {*one.scalings}).pop())


def test_raw_files_are_pinned():
    assert len({file.name for file in FILES}) == len({(file.name, file.sha256) for file in FILES})
    for file in FILES:
        path = PurePosixPath(file.name)
        assert re.fullmatch("[0-9a-f]{64}", file.sha256), path
        assert file.bytes > 0, path
        assert file.url.startswith("https://") or file.name.startswith(NOT_HTTPS), path
        assert all((file.licence, file.citation)), path
        assert not path.is_absolute(), path
        assert len(path.parts) == 2, path
        assert ".." not in path.parts, path
