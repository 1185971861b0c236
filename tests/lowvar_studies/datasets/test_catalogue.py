import re
import subprocess
import sys
from dataclasses import FrozenInstanceError
from pathlib import PurePosixPath

import pytest

from lowvar.errors import UserError
from lowvar_studies.datasets.catalogue import DATASETS, get

FILES = [file for dataset in DATASETS.values() for file in dataset.files]

NOT_HTTPS = ("fashion-mnist/",)  # its server speaks http alone


def test_the_three_first_datasets_are_listed():
    assert {"breast_cancer", "sonar", "australian"} <= set(DATASETS)
    assert DATASETS["breast_cancer"].files == ()


@pytest.mark.parametrize("name", DATASETS)
def test_entries_are_complete(name):
    dataset = DATASETS[name]
    assert dataset.name == name
    assert dataset.title
    assert dataset.licence
    assert dataset.citation
    assert get(name) is dataset
    assert get(dataset) is dataset


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_raw_files_are_pinned(file):
    assert re.fullmatch("[0-9a-f]{64}", file.sha256)
    assert file.bytes > 0
    assert file.url.startswith("https://") or file.name.startswith(NOT_HTTPS)
    assert file.licence
    assert file.citation
    path = PurePosixPath(file.name)
    assert not path.is_absolute()
    assert ".." not in path.parts
    assert len(path.parts) == 2


def test_raw_files_have_different_names():
    by_name = {}
    for file in FILES:
        assert by_name.setdefault(file.name, file) == file


def test_unknown_name_offers_the_nearest():
    with pytest.raises(UserError, match=r"unknown dataset 'australia': did you mean 'australian'\?"):
        get("australia")


def test_entries_are_frozen():
    with pytest.raises(FrozenInstanceError):
        DATASETS["sonar"].title = "other"  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TypeError):
        DATASETS["other"] = DATASETS["sonar"]  # pyright: ignore[reportIndexIssue]


def test_import_brings_nothing_heavy():
    code = (
        "import sys, lowvar_studies.datasets.catalogue, lowvar_studies.datasets.load, lowvar_studies.datasets.prepare, lowvar_studies.datasets.fetch; "
        "print([m for m in ('pooch', 'requests', 'pandas', 'sklearn', 'jax', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_may_not_be_passed_on_says_so():
    assert "no redistribution" in DATASETS["movielens"].licence
    assert "NC" in DATASETS["tennis"].licence


def test_tennis_is_pinned_to_one_commit():
    files = DATASETS["tennis"].files
    assert len(files) == 56
    assert all("/0f917b87fe55f6fa2c3db6e846fa70f0be879110/" in file.url for file in files)
    assert sum(file.bytes for file in files) == 34704426
