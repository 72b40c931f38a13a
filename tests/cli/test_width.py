"""Tables fit 80 columns: no header is broken and no number cut, with names and counts as long as they get."""

import io
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from rich.console import Console, Group
from rich.table import Table

from rota.cli import views
from rota.cli.comparison import comparison_table
from rota.experiments.board import Board, overview
from rota.experiments.jobs import Status, plan
from rota.experiments.suites import open_suite
from rota.report.ending import ArmTotals
from rota.simulation.simulate import SimulationResult
from rota.teachers import TEACHERS
from rota.teachers.curricula import CURRICULA
from rota.training.listeners import Display

LONGER = (
    *("az-web-crawl-filtered-2021", "zh_Hant-subtitles-and-talks", "pt_BR-europarl-backtranslated-by-an-older-model"),
    *("a", "be", "gl-web-crawl", "ru-tatoeba", "tr"),
)
LONG = ("az", "zh_Hant", "gl-web-crawl", "pt-subtitles")
SIXTY = [f"l{number:02}" for number in range(60)]


def rendered(renderable, width):
    file = io.StringIO()
    Console(file=file, width=width, markup=False, highlight=False).print(renderable)
    return [line.rstrip() for line in file.getvalue().splitlines()]


def tables(renderable):
    """Those within groups too; sentences between them may be wrapped."""
    if isinstance(renderable, Table):
        yield renderable
    for part in renderable.renderables if isinstance(renderable, Group) else ():
        yield from tables(part)


def check_fits(renderable):
    """With any room that it likes, a table looks the same."""
    found = list(tables(renderable))
    assert found
    for table in found:
        lines = rendered(table, 80)
        assert lines == rendered(table, 400)
        assert max(map(len, lines)) <= 80


def check_whole(renderable):
    """Names that are too long take several lines; headers and numbers are the same as with any room."""
    found = list(tables(renderable))
    assert found
    for table in found:
        lines = rendered(table, 80)
        assert max(map(len, lines)) <= 80
        assert lines[0].split() == rendered(table, 400)[0].split()
        assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
        first = "".join(re.split(r" {2,}", line.strip())[0] for line in lines[1:])
        names, *numbers = ([cell for cell in column.cells if isinstance(cell, str)] for column in table.columns)
        assert all(name.replace(" ", "") in first.replace(" ", "") for name in names)
        assert all(number.strip() in "\n".join(lines) for column in numbers for number in column)


@pytest.fixture
def eighty(monkeypatch):
    monkeypatch.setattr(views, "console", Console(file=io.StringIO(), width=80, markup=False, highlight=False))


def store(languages, reasons):
    cleaning = {
        name: {"train": {"kept": 12_345_678, **reasons}, "dev": {"kept": 10_000}, "test": {"kept": 10_000}}
        for name in languages
    }
    return SimpleNamespace(
        folder="prepared/a-long-name",
        manifest=SimpleNamespace(cleaning=cleaning, vocabulary=32_000, mess={}),
        languages=list(languages),
        language_of={name: name for name in languages},
        language_sizes=dict.fromkeys(languages, 12_345_678),
        sizes=dict.fromkeys(languages, 12_345_678),
        low_resource=[languages[-1]],
    )


REASONS = {"English in dev or test": 1_234_567, "length ratio": 12_345, "duplicate": 3, "too long": 2, "empty": 0}


def test_prepared_data_with_every_reason(eighty):
    counts, reasons = tables(views.data_table(store(LONG, REASONS)))
    check_fits(counts)
    head, *lines = rendered(reasons, 80)
    assert [part.strip() for part in head.split("  ") if part] == ["dropped because of", "pairs", "most of them in"]
    for reason, count in list(REASONS.items())[:-1]:  # of the last one there are none
        assert any(line.strip().startswith(reason) and f"{4 * count:,}" in line for line in lines)
    check_fits(views.data_table(store(SIXTY, {})))


def test_prepared_data_name_the_reasons_and_who_lost_most(eighty):
    made = store(("az", "be", "ru", "tr"), {})
    for name, count in (("az", 5), ("be", 700), ("ru", 60), ("tr", 8_000)):
        made.manifest.cleaning[name]["train"]["length ratio"] = count
    lines = rendered(views.data_table(made), 80)
    assert any(line.split() == ["tr", "(low)", "12,345,678", "10,000", "10,000", "8,000"] for line in lines)
    [reason] = [line for line in lines if "length ratio" in line]
    assert reason.split("  ")[-1].strip() == "tr 8,000, be 700, ru 60"
    assert "8,765" in reason


def test_without_dropped_pairs_there_is_nothing_about_them(eighty):
    assert "dropped" not in "\n".join(rendered(views.data_table(store(LONG, {"length ratio": 0})), 80))


def test_a_run_while_it_trains_and_at_its_end(eighty):
    sizes = dict.fromkeys(LONG, 1_000_000)
    display = Display(views.console, title="run", languages=LONG, steps=150_000, corpus_tokens=sizes)
    display.resume(140_000, dict.fromkeys(LONG, 212_345_678), [dict.fromkeys(LONG, 12.345)])
    check_fits(display.render())
    for depth in (0, 2):
        long = [ArmTotals(arm, 212_345_678, 0.25, 212.3, 12.345, 11.9, 140_000, {}, depth) for arm in LONG]
        check_fits(views.arm_table(long))


def scored(languages):
    metrics = ("bleu", "chrf", "comet", "loss")
    return SimpleNamespace(
        scores={arm: [SimpleNamespace(metric=metric, signature="") for metric in metrics] for arm in languages},
        low_resource=languages,
        values=lambda _: dict.fromkeys(languages, 100.0),
        averages=lambda _: {"low-resource": 100.0, "high-resource": 100.0, "macro": 100.0, "goal": 100.0},
    )


def test_scores_and_windows(eighty):
    check_fits(views.score_table(scored(LONG), "runs/a, step 150,000, test"))
    averages = {"low-resource": 12.34, "high-resource": 12.34, "macro": 12.34, "goal": 12.34}
    window = SimpleNamespace(step=150_000, steps=(140_000, 150_000), averages=averages, loss=12.345)
    config = SimpleNamespace(combine="average", selecting=SimpleNamespace(beam=5))
    selection = SimpleNamespace(
        best=window,
        windows=(window,),
        select="goal",
        config=config,
        sentences=dict.fromkeys(LONG, 500),
        teacher_share=0.5,
    )
    check_fits(views.window_table(selection))


def test_names_that_are_too_long_take_several_lines_and_break_nothing_else(eighty):
    sizes = dict.fromkeys(LONGER, 1_000_000)
    display = Display(views.console, title="runs/a", languages=LONGER, steps=150_000, corpus_tokens=sizes)
    display.resume(140_000, dict.fromkeys(LONGER, 212_345_678), [dict.fromkeys(LONGER, 12.345)])
    check_whole(display._languages())
    totals = [ArmTotals(arm, 212_345_678, 0.25, 212.3, 12.345, 11.9, 140_000, {}) for arm in LONGER]
    check_whole(views.arm_table(totals))
    assert views.arm_table(totals).columns[0].header == display._languages().columns[0].header == "language"
    counts, _ = tables(views.data_table(store(LONGER, REASONS)))
    check_whole(counts)
    check_whole(views.score_table(scored(LONGER), "runs/a, step 150,000, test"))
    title = rendered(Display(views.console, title="runs/" + "x" * 60, languages=LONG, steps=10).render(), 80)
    assert "".join(re.findall("x+", "".join(title))) == "x" * 60


def compared(names, metric, seeds):
    """What ``rota compare-scores`` found, with numbers as long as they get."""
    scores = (2.345, 2.346, 2.347) if metric == "loss" else (12.3, 12.4, 45.6)
    ends = (-0.123, 0.123) if metric == "loss" else (-12.34, 12.34)
    noise = SimpleNamespace(seeds=3, interval=ends, p_t=0.0, p_permutation=0.25, smallest_p=0.25, smallest_detectable=1)
    same = {"baseline": scores, "system": scores, "difference": ends[0], "p_holm": 0.01, "p_randomisation": 0.0}
    same |= {"bootstrap": SimpleNamespace(interval=ends, p=0.5), "seeds": noise if seeds else None}
    rows = [SimpleNamespace(name=name, low_resource=True, is_group=False, **same) for name in names]
    side = [SimpleNamespace(folder=Path("runs/a"), model="step 10", seed=1)]
    about = {"averages": ["macro"], "notes": [], "signatures": [], "resamples": 1000, "trials": 10_000, "split": "test"}
    sentences = dict.fromkeys(names, 500)
    return SimpleNamespace(rows=rows, metric=metric, baseline=side, system=side, sentences=sentences, **about)


@pytest.mark.parametrize("metric", ["bleu", "loss"])
@pytest.mark.parametrize("seeds", [False, True])
def test_two_systems_side_by_side(metric, seeds):
    check_fits(comparison_table(compared(("az", "be", "tr"), metric, seeds), 80))
    check_whole(comparison_table(compared(LONGER, metric, seeds), 80))


def test_what_is_left_out_for_lack_of_room_is_said_and_not_explained():
    found = compared(("az", "be", "tr"), "loss", seeds=True)
    narrow, wide = ("\n".join(rendered(comparison_table(found, width), width)) for width in (80, 120))
    assert "Not shown in 80 columns, but in --csv: p flip, 95 % (sent.)." in narrow
    assert "sign-flip" not in narrow
    assert "Not shown" not in wide
    assert "exact sign-flip test" in wide


def result(name, arms):
    shares = dict.fromkeys(arms, 1 / len(arms))
    final = dict.fromkeys(arms, 2.0)
    return SimulationResult(shares, [0], {}, {}, final, 2.0)


def test_simulated_teachers_side_by_side_and_below(eighty):
    arms = [*LONG, "gl-web"]
    shown = views.simulation_table({f"teacher-number-{n}": result(n, arms) for n in range(7)}, "world")
    check_fits(shown)
    heads = [rendered(table, 80)[0] for table in tables(shown)]
    assert len(heads) > 1
    assert sum(head.count("teacher-number-") for head in heads) == 7


def test_maps_of_sixty_languages(eighty):
    probe = SimpleNamespace(
        arms=None, languages=SIXTY, matrix=np.full((60, 60), 0.25), network="target", step=1200, factor=5.0
    )
    check_fits(views.policy_table(probe))
    found = SimpleNamespace(
        arms=SIXTY, languages=SIXTY, means=np.full((60, 60), -0.25), sure=np.ones((60, 60)), first=1, last=150_000
    )
    check_fits(views.help_table(found))


def test_a_column_wider_than_the_screen_stands_alone(eighty):
    assert views._blocks({"a": 30, "b": 100, "c": 30, "d": 30}, room=70) == [["a"], ["b"], ["c", "d"]]


@pytest.mark.parametrize("suite", ["laptop", "paper", "controls", "order", "example"])
def test_the_rows_of_a_suite_in_every_state(suite, tmp_path, monkeypatch, eighty):
    found = open_suite(suite)
    jobs = plan(found, tmp_path, rows=list(found.rows), corpora=found.choose_corpora(None))
    monkeypatch.setattr("rota.experiments.board.look", lambda job: Status("partial", job.steps - 1))
    monkeypatch.setattr("rota.experiments.board.check_sources", lambda *_: None)
    check_fits(overview(found, jobs, tmp_path, at_once=2))
    board = Board(views.console, "suite")
    entry = {"state": "running", "step": 149_999, "steps": 150_000, "dev_loss": 12.345, "trained": False, "note": ""}
    board.entries = [SimpleNamespace(job=job, seconds_left=lambda: 5_000.0, **entry) for job in jobs]
    check_fits(board.render())


def test_all_teachers_in_a_list():
    lines = rendered(views.teacher_list({**TEACHERS, **CURRICULA}), 400)
    assert max(map(len, lines)) <= 80


@pytest.mark.parametrize("name", [*TEACHERS, *CURRICULA])
def test_the_settings_of_a_teacher_have_whole_headers_and_defaults(name):
    shown = views.teacher_table(name, {**TEACHERS, **CURRICULA}[name])
    lines = rendered(shown, 80)
    assert max(map(len, lines)) <= 80
    for table in tables(shown):
        assert rendered(table, 80)[0].split() == ["parameter", "default", "meaning"]
        for column in table.columns[:1]:
            assert all(cell.strip() in "\n".join(lines) for cell in column.cells)


def test_there_are_no_colours_where_there_is_no_terminal():
    file = io.StringIO()
    console = Console(file=file, markup=False)
    console.print(views.teacher_list({**TEACHERS, **CURRICULA}))
    console.print(views.data_table(store(LONG, REASONS)))
    assert "\x1b" not in file.getvalue()
