"""A claim judged in one call."""

import pytest

from lowvar_studies.reports import claims


@pytest.fixture
def judge():
    """``judge(effect, tables, **arguments_and_bounds)``: the row of a claim with the note "mine"."""

    def judge(effect, tables, **test):
        stated = {"id": "c", "statement": "s", "source": "t", "note": "mine", "test": {"effect": effect, **test}}
        return claims.judge([claims.parse(stated)], tables).iloc[0]

    return judge
