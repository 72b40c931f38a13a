"""docs/weights.md has a section for every preset of the teacher ``weights``: its whole formula and its source."""

from __future__ import annotations

import re

import pytest
from doc_pages import DOCS, blocks

from rota.teachers import teacher_from
from rota.teachers.weights.config import SIGNALS
from rota.teachers.weights.presets import PRESETS
from rota.teachers.weights.rules import RULES

PAGE = (DOCS / "weights.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##)", PAGE, re.DOTALL | re.MULTILINE))


def test_the_presets_are_in_the_order_of_the_program():
    assert list(SECTIONS) == list(PRESETS)
    assert re.findall(r"^\| \[`(\S+)`\]\(#(\S+)\)", PAGE, re.MULTILINE) == [(name, name) for name in PRESETS]


@pytest.mark.parametrize("name", PRESETS)
def test_a_section_has_one_formula_that_ends_with_the_shares(name):
    [(_, formula)] = list(blocks(SECTIONS[name]))
    last = formula.rstrip().splitlines()[-1].split()
    assert last[0] in ("p", "log") or "loss of each is multiplied by p_k" in formula or "q ∝" in formula


@pytest.mark.parametrize("name", PRESETS)
def test_a_section_says_how_often_the_weights_change(name):
    [(_, formula)] = list(blocks(SECTIONS[name]))
    every, updates = teacher_from(name).reweight_every, teacher_from(name).decide_every
    said = formula.splitlines()[0]
    if every is not None:
        assert said.startswith(f"every {str(every).replace('%', ' %')} of the run")
    else:
        assert said.startswith("after every choice, of ten updates" if updates == 10 else "after every update")


@pytest.mark.parametrize("name", PRESETS)
def test_a_section_names_its_source_and_what_is_our_reading(name):
    text, reference = SECTIONS[name], PRESETS[name].card.reference
    author = re.split(r"[ ,:]", reference)[0]
    assert author.lower() in text.lower() if reference != "a common baseline" else "A common baseline" in text
    assert ("our reading" in reference) == ("**our reading**" in text)


@pytest.mark.parametrize("name", set(PRESETS) - {"jean-implicit"})
def test_a_section_says_what_the_variant_of_the_source_has(name):
    assert "`variant: source`:" in SECTIONS[name]


def test_all_signals_and_rules_are_explained():
    explained = set(re.findall(r"^\| `([a-z0-9-]+)`", PAGE, re.MULTILINE))
    assert {*SIGNALS, *RULES} <= explained
