"""What teachers cost has one source: the table of docs/benchmarks.md. Cards and pages carry its figures, rounded."""

from __future__ import annotations

import re
from decimal import ROUND_HALF_UP, Decimal

import pytest
from doc_pages import DOCS, PAGES

from rota.teachers import TEACHERS
from rota.teachers.curricula import CURRICULA

MEASURED = re.compile(r"^\| ([^|]+) \| ([\d.]+)?(?: \([^)]*\))? \| ([\d.]+)?(?: \([^)]*\))? \|$", re.MULTILINE)


def section(page, heading):
    text = (DOCS / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def table():
    """Percent of a run's time with updates of 750 and of 8,000 tokens, as the page writes them."""
    whole = section("benchmarks.md", "What teachers cost").partition("| spot checks |")[0]
    return {name: (small, large) for name, small, large in MEASURED.findall(whole)}


def rounded(percent):
    """As on a card: ``13%``, ``0.7%``, and ``0`` below 0.05."""
    value = Decimal(percent)
    if value < Decimal("0.05"):
        return "0"
    tenth = value.quantize(Decimal("0.1"), ROUND_HALF_UP)
    return f"{tenth}%" if tenth < 1 else f"{value.quantize(Decimal(1), ROUND_HALF_UP)}%"


CARDS = {
    **{name: (name, kind.card) for name, kind in TEACHERS.items()},
    **{f"curriculum {name}": (name, kind.card) for name, kind in CURRICULA.items()},
}
NOT_MEASURED = {"fixed", "sb3", "replay-proportions", "replay-shuffled", "replay-exact"}


@pytest.mark.parametrize("row", CARDS)
def test_a_card_has_the_costs_of_the_table(row):
    name, card = CARDS[row]
    if name in NOT_MEASURED:
        assert row not in table()
        assert all(cost.startswith("~") for cost in card.cost), "what was not measured is marked so"
    else:
        assert card.cost == tuple(rounded(percent) for percent in table()[row])


def test_the_page_of_the_command_shows_what_it_prints(rota):
    _, output, _ = rota("teachers")
    page = (DOCS / "commands" / "teachers.md").read_text(encoding="utf-8").splitlines()
    shown = page[page.index("The numbers: share of a run's time, with updates of 750 and of 8,000 tokens.") :]
    printed = {" ".join(line.split()) for line in output.splitlines()}
    assert {" ".join(line.split()) for line in shown[: shown.index("...")]} <= printed


def test_rounding():
    assert [rounded(text) for text in ("0.04", "0.05", "0.13", "0.95", "4.5", "13.4")] == [
        *("0", "0.1%", "0.1%", "1%", "5%", "13%")
    ]


def test_the_table_has_no_row_that_is_neither_a_teacher_nor_one_of_its_settings():
    known = {*CARDS, *(name for name, _ in CARDS.values())}
    assert {row.partition(",")[0] for row in table()} <= known


def test_the_page_of_curricula_quotes_the_table():
    rows = re.findall(r"^\| `([a-z-]+)` \| [^|]* \| ([^|]*) \|", section("teachers.md", "Curricula"), re.MULTILINE)
    costs = {name: re.findall(r"([\d.]+)(?: %)?(?:,|;|:|$)", said)[:2] for name, said in rows if name in CURRICULA}
    assert set(costs) == set(CURRICULA)
    for name, said in costs.items():
        assert tuple("0" if cost == "0" else f"{cost}%" for cost in said) == CURRICULA[name].card.cost, name


def test_the_page_of_variants_quotes_the_table():
    said = " ".join(section("teachers.md", "`variant: scaled | paper | released | rota`").split())
    for row, place in (("tscl, variant rota", 0), ("dqn, variant rota", 0), ("tscl, variant rota", 1)):
        assert f"{table()[row][place]} %" in said, row
    for name in ("tscl", "dqn"):
        assert f"{rounded(table()[name][0]).replace('%', ' %')}" in said, name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_no_page_has_costs_of_another_kind(path):
    text = " ".join(path.read_text(encoding="utf-8").split())
    for stale in ("the others computed from their operations", "are from generated text", "adds to the time of a run"):
        assert stale not in text
