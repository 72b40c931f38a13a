"""Arms listed by language and by source: at the end of training, and in the report of a suite."""

import io
import json

import pytest
from made_runs import about_run, step_entry, write_json, write_lines
from rich.console import Console

from rota.cli import views
from rota.report.assemble import make_report
from rota.report.ending import totals_by_language
from rota.report.figures.drawing import shades
from rota.report.figures.shares import arm_colours, evolution, proportions
from rota.report.study import StudyRun, read_study
from rota.report.tables.groups import arm_share_table
from rota.runs import Run
from rota.runs.arms import arm_lines, is_grouped
from rota.training.listeners import Display
from rota.types import Decision

# arm: source language, target language, pairs
SOURCES = {"az": ("az", "en", 10), "tr": ("tr", "en", 40), "az-web": ("az", "en", 30), "xx": ("xx", "en", 20)}
DIRECTIONS = {
    **{"gl-en": ("gl", "en", 10), "en-gl": ("en", "gl", 10), "pt-en": ("pt", "en", 40)},
    **{"gl-en.web": ("gl", "en", 30), "en-gl.web": ("en", "gl", 30)},
}


def make_run(folder, arms, *, seed=1, tokens, epochs, plays=()):
    """Each arm is measured by the dev set of its direction; into English that is the language where it is an arm."""
    folder.mkdir(parents=True)
    about = about_run(seed, "uniform", None, max(1, len(plays)), "corpus")
    dev = {arm: source if source in arms else f"{source}-{target}" for arm, (source, target, _) in arms.items()}
    routes = {arm: {"source": arms[arm][0], "target": arms[arm][1], "dev": dev[arm]} for arm in arms}
    sizes = {name: sum(arms[arm][2] for arm in arms if dev[arm] == name) for name in dev.values()}
    about["config"]["data"]["sources"] = {"web": {"language": "gl"}, "az-web": {"language": "az"}}
    about["data"] |= {"arms": {arm: arms[arm][2] for arm in arms}, "sizes": sizes, "routes": routes, "low_resource": []}
    write_json(folder / "run.json", about)
    write_lines(folder / "steps.jsonl", [step_entry(step, arm) for step, arm in enumerate(plays, start=1)])
    losses = {name: 2.0 + place / 10 for place, name in enumerate(sizes)}
    counted = {"tokens": dict(zip(arms, tokens, strict=True)), "epochs": dict(zip(arms, epochs, strict=True))}
    write_lines(folder / "validations.jsonl", [{"step": len(plays) or 1, "dev_loss": losses, **counted}])
    return folder


def printed(renderable, width=80):
    console = Console(width=width, file=io.StringIO())
    console.print(renderable)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_arms_stand_below_their_language_and_one_arm_is_its_language(tmp_path):
    run = Run(make_run(tmp_path / "run", SOURCES, tokens=(1, 2, 3, 4), epochs=(1, 1, 1, 1)))
    assert [tuple(line) for line in arm_lines(run)] == [
        (0, "az", ("az", "az-web")),
        (1, "az", ("az",)),
        (1, "az-web", ("az-web",)),
        (0, "tr", ("tr",)),
        (0, "xx", ("xx",)),
    ]
    heaviest = arm_lines(run, {"az": 1, "tr": 6, "az-web": 4, "xx": 2})
    assert [line.indented for line in heaviest] == ["tr", "az", "  az-web", "  az", "xx"]


def test_arms_of_one_source_are_together_where_a_language_has_several_directions(tmp_path):
    run = Run(make_run(tmp_path / "run", DIRECTIONS, tokens=(1,) * 5, epochs=(1,) * 5))
    assert [line.indented for line in arm_lines(run)] == [
        "gl",
        *("  own text of gl", "    gl-en", "    en-gl"),
        *("  web", "    gl-en.web", "    en-gl.web"),
        "pt-en",
    ]


def test_the_end_of_training_adds_up_the_arms_of_a_language(tmp_path):
    run = StudyRun(
        make_run(tmp_path / "run", SOURCES, tokens=(100, 300, 500, 100), epochs=(1.0, 1.5, 2.0, 0.0)), "made"
    )
    lines = printed(views.arm_table(totals_by_language(run)))
    assert [line.split() for line in lines] == [
        ["language", "tokens", "share", "epochs", "dev", "loss", "lowest"],
        ["az", "600", "60.0%", "1.7", "2.000", "2.000"],  # texts of 100 and 250 tokens
        ["az-web", "500", "50.0%", "2.0"],
        ["az", "100", "10.0%", "1.0"],
        ["tr", "300", "30.0%", "1.5", "2.100", "2.100"],
        ["xx", "100", "10.0%", "<0.1", "2.200", "2.200"],
    ]
    assert lines[2].startswith("    az-web")
    assert lines[1].startswith("  az ")


def test_where_directions_have_dev_sets_of_their_own_the_arms_have_the_losses(tmp_path):
    run = StudyRun(make_run(tmp_path / "run", DIRECTIONS, tokens=(5, 4, 3, 2, 1), epochs=(1.0,) * 5), "made")
    found = {each.arm: each.dev_loss for each in totals_by_language(run)}
    assert found == {
        **{"gl": None, "own text of gl": None, "gl-en": 2.0, "en-gl": 2.1},
        **{"web": None, "gl-en.web": 2.0, "en-gl.web": 2.1, "pt-en": 2.2},
    }


def test_languages_with_one_arm_each_are_listed_as_before(tmp_path):
    plain = {"az": ("az", "en", 10), "tr": ("tr", "en", 40)}
    run = StudyRun(make_run(tmp_path / "run", plain, tokens=(100, 300), epochs=(1.0, 1.5)), "made")
    assert not is_grouped(arm_lines(run))
    lines = printed(views.arm_table(totals_by_language(run)))
    assert [line.split()[0] for line in lines] == ["language", "tr", "az"]
    assert arm_share_table(read_study([tmp_path]), []) is None


def test_the_panel_has_arms_below_their_language(tmp_path):
    run = Run(make_run(tmp_path / "run", SOURCES, tokens=(1,) * 4, epochs=(1,) * 4))
    language_of = {"az": "az", "tr": "tr", "az-web": "az", "xx": "xx"}
    display = Display(
        views.console,
        title="run",
        languages=("az", "tr", "xx"),
        steps=10,
        language_of=language_of,
        corpus_tokens={"az": 100, "tr": 100, "az-web": 300, "xx": 100},
        lines=arm_lines(run),
    )
    display.updated(5, Decision("az", "sampled"), 1.0, {"az": 50, "az-web": 150, "tr": 200})
    display.validated(5, {"az": 3.0, "tr": 2.0, "xx": 4.0})
    rows = [[part for part in line.split() if part[0] not in "━╸╺"] for line in printed(display._languages())]
    assert rows[1:] == [
        ["az", "200", "50.0%", "0.5", "3.000", "3.000"],
        ["az", "50", "12.5%", "0.5"],
        ["az-web", "150", "37.5%", "0.5"],
        ["tr", "200", "50.0%", "2.0", "2.000", "2.000"],
        ["xx", "0", "0.0%", "0.0", "4.000", "4.000"],
    ]


@pytest.fixture
def suite(tmp_path):
    """Two seeds of one schedule; the arms have 100 tokens for each time that they are played."""
    plays = {1: ["az", "az-web", "tr", "xx"], 2: ["az", "az", "tr", "tr"]}
    tokens = {1: (100, 100, 100, 100), 2: (200, 200, 0, 0)}
    for seed in (1, 2):
        az, tr, web, xx = tokens[seed]
        counted = {"tokens": (az, tr, web, xx), "epochs": (az / 50, tr / 400, web / 100, xx / 100)}
        make_run(tmp_path / "suite" / "mine" / f"seed-{seed}", SOURCES, seed=seed, plays=plays[seed], **counted)
    return tmp_path / "suite"


def test_a_suite_has_one_table_of_languages_with_their_arms_instead_of_that_of_epochs(suite, tmp_path):
    study = read_study([suite])
    table = arm_share_table(study, list(study.rows.values()))
    # az: half of the tokens in both runs; 200 tokens of texts of 150 in the first, web untouched in the second
    assert [[cell.text for cell in row] for row in table.rows] == [
        ["az", "40", "40.0%", "50.0% (1.3)"],
        ["\N{EN DASH} az", "10", "10.0%", "37.5% (3.0)"],
        ["\N{EN DASH} az-web", "30", "30.0%", "12.5% (0.5)"],
        ["tr", "40", "40.0%", "37.5% (0.4)"],
        ["xx", "20", "20.0%", "12.5% (0.5)"],
    ]
    assert {"row": "mine", "seed": 2, "line": "az-web", "arms": 1, "share": 0.0, "epochs": 0.0} in table.data
    made = make_report(
        [suite, make_run(tmp_path / "other", SOURCES, plays=["az"], tokens=(1, 0, 0, 0), epochs=(1,) * 4)],
        tmp_path / "report",
    )
    page = made.page.read_text(encoding="utf-8")
    assert "What each schedule trained on, by language" in page
    assert "Epochs of each language" not in page


def test_arms_of_one_language_lie_beside_each_other_in_shades_of_one_colour(suite):
    study = read_study([suite])
    run, row = study.any_run, study.rows["mine"]
    colours = arm_colours(run)
    assert list(colours) == ["az", "az-web", "tr", "xx"]
    assert colours["az"].lower() == "#b8480a"
    # three fifths of the way to white: 184 + 0.6 * 71, 72 + 0.6 * 183, 10 + 0.6 * 245
    assert colours["az-web"] == "#e3b69d"
    assert "By language: az 50.0%, tr 37.5%, xx 12.5%." in evolution(row).caption
    assert "Arms of one language lie beside each other" in proportions(study, [row]).caption
    assert shades("#B8480A", 1) == ["#B8480A"]


def test_what_is_written_of_a_run_is_read(tmp_path):
    """The records of this file are those of a run: a check on the fixture."""
    folder = make_run(tmp_path / "run", SOURCES, tokens=(1,) * 4, epochs=(1,) * 4)
    assert json.loads((folder / "run.json").read_text())["data"]["sizes"] == {"az": 40, "tr": 40, "xx": 20}
