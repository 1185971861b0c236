"""Suggestions for misspelt names: a close one or none, and all names that there are."""

import pytest

from lowvar.errors import UserError, check_known, nearest, unknown_name

KNOWN = ["cv", "curves", "effort", "errors", "joint_adaptive", "joint_sonar", "mini_boone", "seconds", "variance_ratio"]
CLOSE = {
    "errros": "errors",  # two letters swapped
    "vc": "cv",
    "erors": "errors",
    "curve": "curves",
    "cubves": "curves",
    "secondss": "seconds",
    "Mini-Boone": "mini_boone",
    "miniboone": "mini_boone",
    "adaptive_joint": "joint_adaptive",
    "jiont_adaptvie": "joint_adaptive",  # two pairs swapped, in a long name
    "varianc": "variance_ratio",  # its beginning
}


@pytest.mark.parametrize(("name", "meant"), CLOSE.items())
def test_a_close_name_is_suggested(name, meant):
    assert nearest(name, KNOWN) == meant
    assert repr(meant) in str(unknown_name("figure", name, KNOWN)).partition("(known: ")[0]


@pytest.mark.parametrize("name", ["errros", "nosuch", "boxes", "joint_dropout", "joint", "x", "", "_", "e" * 100_000])
def test_nothing_far_is_suggested_and_the_names_are_listed(name):
    known = sorted({*KNOWN, "joint_svrg", "y"} - {"errors"})
    assert nearest(name, known) is None
    assert str(unknown_name("figure", name, known)).endswith(f"figure {name!r} (known: {', '.join(known)})")


def test_the_closest_of_several_is_suggested():
    assert nearest("vvcv_tabel2", ["vvcv_table1", "vvcv_table2", "vvcv_table3"]) == "vvcv_table2"
    assert nearest("adaptive_mlmc", ["joint_adaptive", "adaptive_mlms", "mlmc_adaptive"]) == "mlmc_adaptive"


@pytest.mark.parametrize("name", KNOWN)
def test_every_name_with_two_letters_swapped_is_found(name):
    for at in range(len(name) - 1):
        assert nearest(name[:at] + name[at + 1] + name[at] + name[at + 2 :], KNOWN) == name


@pytest.mark.parametrize(("count", "lists"), [(20, True), (21, False)])
def test_many_names_are_listed_by_a_command(count, lists):
    known = [f"page_{chr(ord('a') + i)}" for i in range(count)]
    with pytest.raises(UserError) as refused:
        check_known("page", "nosuch", known, see="lowvar pages")
    assert ("page_t" in str(refused.value), "lowvar pages" in str(refused.value)) == (lists, not lists)
    assert "page_t" in str(unknown_name("page", "nosuch", known))  # there is no such command
