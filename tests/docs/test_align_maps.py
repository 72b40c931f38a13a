"""docs/teachers.md on align's two maps: what each half shows, and that two versions of align made them."""

from __future__ import annotations

import re

import pytest
from doc_pages import DOCS

PAGE = (DOCS / "teachers.md").read_text(encoding="utf-8")
MAPS = dict(re.findall(r"!\[([^\]]*)\]\((pictures/who-helps-whom[^)]*)\)", PAGE))


def test_both_maps_are_on_the_page():
    assert sorted(MAPS.values()) == ["pictures/who-helps-whom-second-seed.png", "pictures/who-helps-whom.png"]


@pytest.mark.parametrize("alternative", MAPS)
def test_what_replaces_a_map_for_those_who_do_not_see_it_tells_the_halves_apart(alternative):
    assert "First half:" in alternative
    assert "Second half:" in alternative


def test_the_page_says_that_the_maps_are_of_two_versions():
    said = " ".join(PAGE.partition("**Its map on a messy corpus.**")[2].partition("![")[0].split())
    assert "every 60 updates for 2.5 % of the computation, the second every 80 and 1.5 %" in said
    assert PAGE.count("*Second half.*") == 2
