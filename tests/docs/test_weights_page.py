"""docs/weights.md has a section for every preset of the teacher ``weights``: its whole formula and its source."""

from __future__ import annotations

import re

import pytest
from doc_pages import DOCS, blocks
from ruamel.yaml import YAML

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


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "jean-implicit"])
def test_a_section_says_what_the_variant_of_the_source_has(name):
    assert "`variant: source`:" in SECTIONS[name]


def written(section):
    """The teachers that are written out within sentences."""
    found = re.findall(r"`(?:teacher: )?(\{name: .*?\})`", section)
    return [teacher_from(YAML(typ="safe", pure=True).load(text)) for text in found]


def test_where_multiuat_starts_can_be_changed_as_the_page_says():
    assert "`--temperature` is 1 unless it is given" in SECTIONS["multiuat"]
    [text] = re.findall(r"`prior: (\{.*?\})`", SECTIONS["multiuat"])
    prior = YAML(typ="safe", pure=True).load(text)
    for variant in ("rota", "source"):
        teacher = teacher_from({"name": "multiuat", "variant": variant, "prior": prior})
        assert (teacher.prior.name, teacher.prior.temperature) == ("temperature", 5)
        assert teacher_from({"name": "multiuat", "variant": variant}).prior.name == "proportional"


def test_the_constants_of_dynamix_sfts_paper_are_settings_and_its_order_is_none():
    assert "We smooth first" in SECTIONS["dynamix-sft"]
    [teacher] = written(SECTIONS["dynamix-sft"])
    assert (teacher.smoothing, 1 / teacher.temperature, 8 * teacher.floor) == (0.05, 4, pytest.approx(0.3))
    assert teacher.reweight_every.steps(10_000) == 50


def test_every_teacher_that_the_page_writes_out_exists():
    assert len(written(PAGE)) >= 3


def test_all_signals_and_rules_are_explained():
    explained = set(re.findall(r"^\| `([a-z0-9-]+)`", PAGE, re.MULTILINE))
    assert {*SIGNALS, *RULES} <= explained
