import re
import subprocess
import sys
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


def test_import_brings_nothing_heavy():
    code = (
        "import sys, lowvar_studies.datasets.catalogue, lowvar_studies.datasets.load, lowvar_studies.datasets.prepare, lowvar_studies.datasets.fetch; "
        "print([m for m in ('pooch', 'requests', 'pandas', 'sklearn', 'jax', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_tennis_is_pinned_to_one_commit():
    files = DATASETS["tennis"].files
    assert len(files) == 56
    assert all("/0f917b87fe55f6fa2c3db6e846fa70f0be879110/" in file.url for file in files)
    assert sum(file.bytes for file in files) == 34704426
