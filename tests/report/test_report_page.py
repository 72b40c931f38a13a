"""The page of a report in a real browser: telephone and desk, light and dark. Run by ``make slow``."""

import pytest
from browser import Browser, find_browser
from made_runs import SIZES, everywhere, make_run, make_suite, write_json

from rota.report.assemble import make_report

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(find_browser() is None, reason="no Chromium; install Debian's package chromium"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Ten schedules with three seeds: two learned, one with a long name, two that differ in the warm-up alone."""
    folder = tmp_path_factory.mktemp("made")
    rows = {f"row-{number}": {"label": f"Schedule {number}"} for number in range(8)}
    rows["row-2"] = {"label": "Schedule 1", "warmup": "no"}
    rows |= {"tscl": {"label": "TSCL"}, "dqn": {"label": "DQN with a rather long name", "paper": "dqn/16000"}}
    make_suite(folder / "suite", rows, seeds=[1, 2, 3])
    for number, row in enumerate(rows):
        for seed in (1, 2, 3):
            make_one(folder / "suite" / row / f"seed-{seed}", row, seed, number)
    probes = folder / "suite" / "dqn" / "seed-1" / "policy"
    probes.mkdir()
    for step in (4, 8):
        matrix = [[0.1, 0.2, 0.3, 0.4]] * 4
        write_json(probes / f"{step}.json", {"step": step, "languages": list(SIZES), "matrix": matrix, "factor": 5})
    return make_report([folder / "suite"], folder / "report")


def make_one(folder, row, seed, number):
    learned = row in ("tscl", "dqn")
    told = [{"step": step, "arm": ("az", "tr", "ru")[step % 3], "joint_loss": 3 - step**0.5} for step in range(1, 21)]
    values = {step: {"epsilon": 0.1, "scores": everywhere(step / 10)} for step in range(1, 21)}
    make_run(
        folder,
        seed=seed,
        teacher=row if learned else "uniform",
        dev_losses={10: everywhere(3.0 + number / 50), 20: everywhere(2.0 + seed * number / 100)},
        scores={metric: everywhere(20.0 + number * seed / 10) for metric in ("chrf", "bleu", "comet")},
        selected=12,
        decisions=values if learned else {},
        observations=told if learned else [],
    )


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


VIEWS = [(width, scheme) for width in (390, 1440) for scheme in ("light", "dark")]


@pytest.fixture(params=VIEWS, ids=lambda view: f"{view[0]}-{view[1]}")
def page(request, browser, report):
    browser.open(report.page.as_uri(), *request.param)
    return browser


def test_the_console_stays_silent_and_no_request_leaves_the_page(page, report):
    assert page.complaints() == []
    assert [url for url in page.requests() if not url.startswith("data:")] == [report.page.as_uri()]


def test_every_figure_is_there_and_has_a_size(page, report):
    boxes = page.run(
        "[...document.querySelectorAll('figure')].map(figure => { const box = figure.querySelector('svg')"
        ".getBoundingClientRect(); return [figure.id, box.width, box.height] })"
    )
    assert [name for name, _, _ in boxes] == [f"figure-{name}" for name in report.figures]
    assert all(width > 250 and height > 80 for _, width, height in boxes), boxes


def test_nothing_is_wider_than_the_window_but_inside_the_boxes_of_tables(page):
    width, inner = page.run("[document.documentElement.scrollWidth, window.innerWidth]")
    assert width <= inner
    beyond = page.run(
        "[...document.querySelectorAll('body *')].filter(one => !one.closest('table, defs, clipPath') &&"
        " one.getBoundingClientRect().right > window.innerWidth + 1).map(one => one.tagName + ' ' + one.id)"
    )
    assert beyond == []


def test_every_table_shows_its_first_column_in_letters_that_can_be_read(page, report):
    tables = page.run(
        "[...document.querySelectorAll('.scroll')].map(box => { const cell = box.querySelector('tbody th');"
        " const seen = cell.getBoundingClientRect(); box.scrollLeft = 9999; const after = cell.getBoundingClientRect();"
        " box.scrollLeft = 0; return [parseFloat(getComputedStyle(cell).fontSize), seen.width, box.clientWidth,"
        " after.left - box.getBoundingClientRect().left] })"
    )
    assert len(tables) == len(report.tables)
    for size, width, box, left in tables:
        assert size >= 12
        assert width < box * 0.6, "there is room for numbers beside it"
        assert abs(left) < 3, "it stays when the table is scrolled"


@pytest.mark.parametrize("width", [390, 768, 1200])
def test_rows_can_be_told_apart_when_their_table_is_scrolled(browser, report, width):
    browser.open(report.page.as_uri(), width, "light")
    tables = browser.run(
        "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth)"
        ".map(box => [...box.querySelectorAll('tbody th')].map(cell => cell.innerText.trim()))"
    )
    assert tables
    for names in tables:
        assert len(set(names)) == len(names), names
    assert {"Schedule 1", "Schedule 1 (10%)"} <= set(tables[0])


CONTRAST = """
(() => {
  const channels = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const light = colour => channels(colour).map(one => one / 255)
    .map(one => one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4)
    .reduce((sum, one, place) => sum + one * [0.2126, 0.7152, 0.0722][place], 0);
  const page = light(getComputedStyle(document.body).backgroundColor);
  const contrast = colour => { const [high, low] = [light(colour), page].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05); };
  const words = [...document.querySelectorAll('p, li, td, caption, figcaption, h2')];
  const ticks = [...document.querySelectorAll('svg g[id*=tick] text')];
  const lines = [...document.querySelectorAll('#figure-dev-loss-macro path[style*=schedule]')];
  return [Math.min(...words.map(one => contrast(getComputedStyle(one).color))),
    Math.min(...ticks.map(one => contrast(getComputedStyle(one).fill))),
    Math.min(...lines.map(one => getComputedStyle(one).stroke).filter(one => one != 'none').map(contrast))];
})()
"""


def test_words_and_figures_stand_out_from_the_page(page):
    words, ticks, lines = page.run(CONTRAST)
    assert words >= 4.5
    assert ticks >= 4.5
    assert lines >= 3


def test_the_dark_page_is_dark_and_the_light_one_light(browser, report):
    backgrounds = []
    for scheme in ("light", "dark"):
        browser.open(report.page.as_uri(), 390, scheme)
        backgrounds.append(browser.run("getComputedStyle(document.body).backgroundColor"))
    assert backgrounds == ["rgb(255, 255, 255)", "rgb(19, 23, 28)"]


def test_it_prints(browser, report, tmp_path):
    browser.open(report.page.as_uri(), 1440, "dark")
    browser.pdf(tmp_path / "report.pdf")
    assert (tmp_path / "report.pdf").read_bytes().startswith(b"%PDF")
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", (
        "also from a dark screen"
    )


def test_no_table_is_wider_than_paper(browser, report):
    """718 pixels are what A4 leaves between the margins."""
    browser.open(report.page.as_uri(), 718, "light")
    browser.call("Emulation.setEmulatedMedia", media="print")
    widths = browser.run(
        "[...document.querySelectorAll('table')]"
        ".map(one => [one.closest('[id]').id, one.getBoundingClientRect().width])"
    )
    assert len(widths) == len(report.tables)
    assert [found for found in widths if found[1] > 718] == []
    size = "parseFloat(getComputedStyle(document.querySelector('{}')).fontSize)"
    assert browser.run(size.format(".paper")) < browser.run(size.format("td")), "small beside ours, also on paper"
