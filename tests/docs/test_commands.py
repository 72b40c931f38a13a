"""The pages of docs/commands against the program itself: no option is missing, invented, or given another default.

``website/made_pages.py`` makes their tables; here they are read from the pages and compared again.
"""

from __future__ import annotations

import re

import pytest
from doc_pages import COMMAND_PAGES, PAGES, ROOT, bare_options, calls, commands, is_option, options, parameters

SECTIONS = ["Example", "Options", "What it writes", "Interrupted, repeated", "Errors"]
NAMES = sorted(commands())


def page(name):
    return (COMMAND_PAGES / f"{name}.md").read_text(encoding="utf-8")


def table(text):
    """Names and defaults in the table under the heading Options."""
    rows = text.partition("\n## Options\n")[2].partition("\n## ")[0].splitlines()
    cells = [re.split(r"(?<!\\)\|", row)[1:3] for row in rows if row.startswith("| `")]
    return [(name.strip(), default.strip()) for name, default in cells]


def written_name(parameter):
    names = (
        parameter.opts + parameter.secondary_opts
        if is_option(parameter)
        else [parameter.metavar or parameter.human_readable_name]
    )
    return ", ".join(f"`{name}`" for name in names)


def fits(parameter, default):
    """A value stands in code; where the program has none, words say what happens, in its help too."""
    if parameter.required:
        return default == "required"
    if isinstance(parameter.show_default, str):
        return default == parameter.show_default
    if getattr(parameter, "is_flag", False) and parameter.default is not None:
        return default == "off"
    return parameter.default is not None and default == f"`{parameter.default}`"


@pytest.mark.parametrize("name", NAMES)
def test_the_options_of_a_page_are_those_of_the_command_with_their_defaults(name):
    shown, expected = table(page(name)), parameters(name)
    assert [found for found, _ in shown] == [written_name(parameter) for parameter in expected]
    for (found, default), parameter in zip(shown, expected, strict=True):
        assert fits(parameter, default), f"{found}: the page has {default}, the program {parameter.default!r}"


def test_a_default_that_is_not_the_programs_is_noticed():
    beam = next(parameter for parameter in parameters("translate") if parameter.name == "beam")
    assert fits(beam, "`5`")
    assert not fits(beam, "`4`")
    assert not fits(beam, "five")
    step = next(parameter for parameter in parameters("translate") if parameter.name == "step")
    assert fits(step, "the last")
    assert not fits(step, "`1000`")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_names_no_option_that_the_command_lacks(name):
    assert set(bare_options(page(name))) <= options(name)


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_every_command_line_in_the_documentation_can_be_typed(path):
    for command, given in calls(path.read_text(encoding="utf-8")):
        assert command in commands(), f"rota {command}"
        assert set(given) <= options(command), f"rota {command}"


def test_every_command_has_a_page_and_the_index_lists_them_all():
    index = (COMMAND_PAGES / "README.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"^\| \[.*?\]\((\S+)\.md\)", index, re.MULTILINE)) == NAMES
    assert {path.stem for path in COMMAND_PAGES.glob("*.md")} == {*NAMES, "README"}


@pytest.mark.parametrize("name", NAMES)
def test_a_page_says_in_one_order_what_people_look_for(name):
    assert page(name).startswith(f"# rota {name}\n")
    assert re.findall(r"^## (.*)$", page(name), re.MULTILINE) == SECTIONS


@pytest.mark.parametrize("name", NAMES)
def test_the_help_of_a_command_has_an_example_and_says_what_every_option_is(name):
    assert f"Example: rota {name}" in (commands()[name].help or "")
    for parameter in parameters(name):
        assert getattr(parameter, "help", None), parameter.name


def test_no_help_loses_words_on_the_way_to_the_screen():
    """Markdown swallows what looks like a tag: ``runs/<name>`` was shown as ``runs/``."""
    for name in NAMES:
        for parameter in parameters(name):
            assert not re.search(r"<\w", getattr(parameter, "help", "")), parameter.name


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_links_lead_somewhere(path):
    text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        there = (path.parent / name) if name else path
        assert there.exists(), target
        if heading:
            assert heading in headings(there), target


def headings(path):
    """The names under which GitHub links to the headings of a page."""
    titles = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_the_readme_links_to_every_page():
    linked = set(re.findall(r"\]\((docs/[^)#]+\.md)", (ROOT / "README.md").read_text(encoding="utf-8")))
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").glob("*.md")} | {"docs/commands/README.md"}
    assert pages <= linked
