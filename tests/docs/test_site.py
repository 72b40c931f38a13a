"""The documentation site: complete navigation, up-to-date tables, a strict build, and how it looks in a browser."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import pytest
from doc_pages import DOCS, ROOT
from ruamel.yaml import YAML

import made_pages
import rota
import rota.hf
from rota.teachers import TEACHERS
from rota.teachers.curricula import CURRICULA

sys.path.insert(0, str(ROOT / "tests" / "report"))

from browser import Browser, find_browser

PHONE, DESKTOP = 390, 1280
MADE_BY_HOOKS = {"contributing.md", "changelog.md"}  # from the repository's top folder


def in_navigation(entries):
    """Every page of ``nav``, in order."""
    for entry in entries:
        for value in entry.values() if isinstance(entry, dict) else [entry]:
            if isinstance(value, str):
                yield value
            else:
                yield from in_navigation(value)


def settings():
    return YAML(typ="rt", pure=True).load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))


def pages_of_docs():
    """Markdown and notebooks; of a study its page and its reports, not the tables as single files."""
    found = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md") if path.parent.name != "tables"}
    return found | {path.relative_to(DOCS).with_suffix(".md").as_posix() for path in DOCS.rglob("*.ipynb")}


def test_the_navigation_has_every_page_once_and_nothing_else():
    listed = list(in_navigation(settings()["nav"]))
    assert len(listed) == len(set(listed))
    missing = pages_of_docs() - set(listed)
    assert not missing, f"not in the navigation: {sorted(missing)}; add them to nav in mkdocs.yml"
    assert set(listed) - pages_of_docs() == MADE_BY_HOOKS


def test_the_first_page_leads_to_every_part_of_the_navigation():
    links = set(re.findall(r"\]\(([^)#]+)", (DOCS / "README.md").read_text(encoding="utf-8")))
    reached = {link.replace(".ipynb", ".md").removeprefix("../").lower() for link in links}
    for entry in settings()["nav"][1:]:
        [(title, part)] = entry.items()
        inside = {part} if isinstance(part, str) else set(in_navigation(part))
        assert {page.lower() for page in inside} & reached, title


@pytest.mark.parametrize("place", list(made_pages.parts()))
def test_what_is_made_from_the_program_is_up_to_date(place):
    page = (DOCS / place).read_text(encoding="utf-8")
    assert made_pages.updated(page, made_pages.parts()[place]) == page, "run make pages"


def test_a_change_of_the_program_is_noticed_and_the_text_around_it_kept(tmp_path):
    for place in made_pages.parts():
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text((DOCS / place).read_text(encoding="utf-8"), encoding="utf-8")
    assert made_pages.main(tmp_path) == []
    train = tmp_path / "commands" / "train.md"
    right = train.read_text(encoding="utf-8")
    train.write_text(right.replace("the end of the run", "never"), encoding="utf-8")
    (tmp_path / "commands" / "demo.md").unlink()
    assert made_pages.main(tmp_path) == [tmp_path / "commands" / "demo.md", train]
    assert train.read_text(encoding="utf-8") == right
    begun = (tmp_path / "commands" / "demo.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", begun, re.MULTILINE) == list(made_pages.SECTIONS)
    assert "```sh\nrota demo --corpus synthetic --teacher proportional\n```" in begun
    assert "| `--folder` | `demo` | Where data and runs go. |" in begun


def test_a_page_without_its_marks_is_refused(tmp_path):
    (tmp_path / "commands").mkdir()
    (tmp_path / "commands" / "README.md").write_text("# The commands\n", encoding="utf-8")
    with pytest.raises(ValueError, match="README.md: write these two lines where the table belongs"):
        made_pages.main(tmp_path)
    with pytest.raises(ValueError, match="write these two lines"):
        made_pages.updated(f"{made_pages.END}\n{made_pages.BEGIN}\n", "x")


def parameter(**changes):
    usual = {"param_type_name": "option", "opts": ["--x"], "secondary_opts": [], "required": False, "help": "An x."}
    return SimpleNamespace(**{**usual, "default": None, "show_default": True, "is_flag": False, **changes})


def test_an_option_must_say_what_happens_without_it():
    with pytest.raises(ValueError, match="--x has no default to show; say what it does without: show_default="):
        made_pages.options_table("demo", SimpleNamespace(params=[parameter()]))
    shown = made_pages.options_table("demo", SimpleNamespace(params=[parameter(show_default="a * b | c")]))
    assert shown.endswith("| `--x` | a \\* b \\| c | An x. |")
    assert "| on |" in made_pages.options_table("demo", SimpleNamespace(params=[parameter(default=True, is_flag=True)]))


def test_the_schedules_are_all_there_with_what_their_cards_say():
    rows = [line.split(" | ") for line in made_pages.parts()["schedules.md"].splitlines() if line.startswith("| [")]
    names = [re.findall(r"`(.*)`", row[0])[0] for row in rows]
    assert sorted(names) == sorted([*TEACHERS, *CURRICULA])
    [tscl] = [row for row in rows if "[`tscl`]" in row[0]]
    card = TEACHERS["tscl"].card
    assert tscl[1:6] == ["Bandits", card.line, card.observes, *card.cost]
    assert tscl[6].startswith(card.reference.split(";")[0])


def reference():
    return re.findall(r"^<!-- api: (\S+) -->$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", reference())
def test_what_the_reference_lists_exists_and_has_a_docstring(name):
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        found = getattr(importlib.import_module(module), attribute)
    assert found.__doc__


def test_the_reference_has_all_public_names():
    listed = set(reference())
    assert {f"rota.{name}" for name in rota.__all__ if not name.startswith("_")} <= listed
    assert {f"rota.hf.{name}" for name in rota.hf.__all__} <= listed


def hooks():
    pytest.importorskip("mkdocs")
    return importlib.import_module("site_hooks")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("[rules](../CONTRIBUTING.md)", "[rules](contributing.md)"),
        ("[rules](../CONTRIBUTING.md#x)", "[rules](contributing.md#x)"),
        ("[speed](../benchmarks)", "speed"),
        ("[all](commands)", "[all](commands/README.md)"),
        ("[records](results/laptop/catalogues)", "records"),
        ("[`a`](teachers.md#dqn)", "[`a`](teachers.md#dqn)"),
        ("[nb](notebooks/x.ipynb)", "[nb](notebooks/x.md)"),
        ("![x](pictures/loop.svg)", "![x](pictures/loop.svg)"),
        ("[web](https://example.org)", "[web](https://example.org)"),
        ("`[kept](../benchmarks)`", "`[kept](../benchmarks)`"),
    ],
)
def test_links_of_a_page_are_those_that_the_site_needs(written, expected):
    assert hooks().moved(f"See {written}.", "docs", "") == f"See {expected}."


def test_links_out_of_the_site_lead_to_the_repository_if_it_is_known():
    found = hooks().moved("[b](../../benchmarks/run.py)", "docs/commands", "commands", "https://example.org/rota/")
    assert found == "[b](https://example.org/rota/blob/main/benchmarks/run.py)"


def test_a_page_in_a_folder_links_relative_to_it():
    assert hooks().moved("[c](../../CHANGELOG.md)", "docs/commands", "commands") == "[c](../changelog.md)"
    assert hooks().moved("[c](docs/alarms.md)", "", "") == "[c](alarms.md)"


def test_a_notebook_becomes_a_page(tmp_path):
    cells = """[{"cell_type": "markdown", "source": ["# A\\n", "text"]},
        {"cell_type": "code", "source": ["print(1)"], "outputs": [{"text": ["1\\n"]}, {"data": {"text/plain": ["2"]}},
         {"data": {"image/png": "iVBO\\nRw0K", "text/plain": ["a picture"]}}]}]"""
    (tmp_path / "x.ipynb").write_text(f'{{"cells": {cells}}}', encoding="utf-8")
    assert hooks().notebook_page(tmp_path / "x.ipynb") == (
        "# A\ntext\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\n```text\n2\n```\n\n"
        '<img alt="a picture" src="data:image/png;base64,iVBORw0K">\n'
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built site; strict: a warning, such as a broken link, is an error."""
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def built(site, page):
    path = (site / page).with_suffix(".html")
    text = (path.with_name("index.html") if path.stem == "README" else path).read_text(encoding="utf-8")
    return text.partition("<article")[2].partition("</article")[0]


@pytest.mark.slow
def test_pages_have_the_same_lists_tables_and_code_as_in_a_repository_browser(site):
    """The site's Markdown is not quite the repository browser's: a list without a blank line before it, for example."""
    from markdown_it import MarkdownIt

    browser = MarkdownIt("commonmark").enable("table")
    for page in in_navigation(settings()["nav"]):
        if page in MADE_BY_HOOKS or page.startswith("notebooks/") or page == "api.md":
            continue
        there, here = browser.render((DOCS / page).read_text(encoding="utf-8")), built(site, page)
        for tag in ("li", "ul", "ol", "table", "tr", "pre", "code", "img", "h2", "h3"):
            counts = [len(re.findall(rf"<{tag}[\s>]", text)) for text in (there, here)]
            assert counts[0] == counts[1], f"{page}: {counts} <{tag}>"


@pytest.mark.slow
def test_the_reference_shows_signatures_and_docstrings(site):
    text = re.sub(r"<[^>]+>", "", built(site, "api.md"))
    for name in reference():
        assert name.rpartition(".")[2] in text
    assert "Train, or resume training, the run in the folder" in text
    assert "until" in text
    assert ":class:" not in text
    assert ":func:" not in text


@pytest.mark.slow
def test_no_page_loads_anything_from_another_host(site):
    loads = re.compile(
        r"<(?:script|img|iframe|source)[^>]*\ssrc=\"?(?:https?:)?//|<link(?![^>]*canonical)[^>]*href=\"?(?:https?:)?//"
    )
    for path in site.rglob("*.html"):
        assert not loads.search(path.read_text(encoding="utf-8")), path
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(\"?(?:https?:)?//", path.read_text(encoding="utf-8")), path


@pytest.fixture(scope="module")
def address(site):
    class Silent(SimpleHTTPRequestHandler):
        def log_message(self, *_):
            """Requests are not printed."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Silent, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find_browser() is None:
        pytest.skip("needs Chromium")
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


def until(browser, expression, seconds=20):
    """The value of an expression as soon as it is true."""
    end = time.monotonic() + seconds
    while not (value := browser.run(expression)):
        assert time.monotonic() < end, expression
        time.sleep(0.1)
    return value


@pytest.mark.slow
@pytest.mark.parametrize("width", [PHONE, DESKTOP])
def test_every_page_fits_the_window_and_asks_no_other_host(site, address, browser, width):
    for path in sorted(site.rglob("*.html")):
        if path.parent.name.startswith("report-") and path.name == "index.html":
            continue  # a page of rota report: tests/report
        browser.open(address + path.relative_to(site).as_posix(), width, "light")
        until(browser, "document.readyState === 'complete'")
        assert browser.run("document.documentElement.scrollWidth") <= width, path.name
        assert browser.complaints() == [], path.name
        assert [url for url in browser.requests() if not url.startswith((address, "data:"))] == [], path.name


NAMES = "[...document.querySelectorAll('tbody tr')].map((row) => row.cells[0].textContent.trim())"


def click(browser, column):
    browser.run(f"document.querySelectorAll('th button')[{column}].click() ?? true")


@pytest.mark.slow
def test_the_schedules_can_be_sorted(address, browser):
    browser.open(f"{address}schedules.html", DESKTOP, "light")
    until(browser, "document.querySelectorAll('th button').length === 7")
    before = browser.run(NAMES)
    click(browser, 0)
    assert browser.run(NAMES) == sorted(before)
    click(browser, 4)
    click(browser, 4)
    costs = browser.run("[...document.querySelectorAll('tbody tr')].map((row) => row.cells[4].textContent.trim())")
    values = [float(cost.strip("~+%")) for cost in costs]
    assert values == sorted(values, reverse=True)
    assert browser.run("document.querySelectorAll('th')[4].getAttribute('aria-sort')") == "descending"


@pytest.mark.slow
def test_a_table_with_sentences_is_a_list_on_a_phone(address, browser):
    shown = "getComputedStyle(document.querySelector('tbody td')).display"
    for width, expected in ((PHONE, "block"), (DESKTOP, "table-cell")):
        browser.open(f"{address}commands/evaluate.html", width, "dark")
        until(browser, "document.querySelector('table[data-stacked]') !== null")
        assert browser.run(shown) == expected


@pytest.mark.slow
def test_the_search_finds_a_page(address, browser):
    browser.open(f"{address}index.html?q=unimax", DESKTOP, "light")
    found = until(
        browser, "[...document.querySelectorAll('.md-search-result__link')].map((link) => link.href).join(' ')"
    )
    assert "teachers.html" in found
