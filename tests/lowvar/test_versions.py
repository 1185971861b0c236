"""The versions that are tested are those that are promised."""

import re
import tomllib

import pytest


@pytest.fixture
def project(repository):
    return tomllib.loads((repository / "pyproject.toml").read_text())["project"]


def pinned(path):
    return dict(line.split("==") for line in path.read_text().splitlines() if "==" in line and not line.startswith("#"))


def version(text):
    return tuple(int(part) for part in re.findall(r"\d+", text))


def padded(text, length=4):
    return (version(text) + (0,) * length)[:length]


def test_the_oldest_versions_are_the_lower_bounds(repository, project):
    groups = [
        project["dependencies"],
        *(rows for name, rows in project["optional-dependencies"].items() if name != "gpu"),
    ]
    bounds = dict(re.fullmatch(r"([\w.-]+)(?:\[\w+\])?>=([\d.]+)", row).groups()
                  for rows in groups for row in rows if not row.startswith("lowvar"))  # fmt: skip
    oldest = pinned(repository / "constraints-oldest.txt")
    assert {name: padded(bound) for name, bound in bounds.items()} == {
        name: padded(bound) for name, bound in oldest.items()
    }
