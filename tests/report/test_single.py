"""One run by itself: what it saw by arm, the two lines at its end, and its page."""

import json

import pytest
from made_runs import SIZES, everywhere, make_run, write_lines

from rota.report.assemble import make_report
from rota.report.ending import arm_totals, how_to_score, in_epochs, shares_over_time, what_it_saw, what_next
from rota.report.single import arm_table
from rota.report.study import StudyRun
from rota.report.tables.groups import arm_groups, group_table

TOKENS = {"az": 500, "be": 300, "tr": 150, "ru": 50}
EPOCHS = {"az": 5.0, "be": 3.0, "tr": 0.4, "ru": 0.1}


def run_with(folder, losses, **records):
    """A run whose validations have tokens and epochs too."""
    made = make_run(folder, dev_losses={2 * n: everywhere(loss) for n, loss in enumerate(losses, start=1)}, **records)
    entries = [
        {"step": 2 * n, "dev_loss": everywhere(loss) | {"az": loss + 1}, "tokens": TOKENS, "epochs": EPOCHS}
        for n, loss in enumerate(losses, start=1)
    ]
    write_lines(made / "validations.jsonl", entries)
    return StudyRun(made, "made")


FALLING = [5.0 - 0.2 * n for n in range(10)]
RISING = [4.0, 3.0, 2.5, 2.6, 2.7, 2.8, 2.9, 3.0, 3.1, 3.2]
LEVEL = [4.0, 3.0] + [2.5] * 8


def test_totals_are_those_of_the_last_validation(tmp_path):
    az, *_, ru = arm_totals(run_with(tmp_path / "run", RISING))
    assert (az.tokens, az.share, az.epochs) == (500, 0.5, 5.0)
    assert (az.dev_loss, az.lowest, az.lowest_step) == (4.2, 3.5, 6)
    assert ru.words == "ru 5% (0.1 epochs)"


def test_a_run_of_an_earlier_version_is_counted_from_its_steps(tmp_path):
    folder = make_run(tmp_path / "run", arms=["az", "az", "be", "tr"], dev_losses={20: everywhere(2.0)})
    totals = {each.arm: each for each in arm_totals(StudyRun(folder, "run"))}
    assert {arm: each.tokens for arm, each in totals.items()} == {"az": 1000, "be": 500, "tr": 500, "ru": 0}
    assert totals["az"].share == 0.5
    assert totals["az"].epochs is None
    assert totals["ru"].words == "ru 0%"


def test_shares_over_time_are_those_between_two_validations(tmp_path):
    folder = make_run(tmp_path / "run")
    totals = ({"az": 30, "tr": 10}, {"az": 30, "tr": 10}, {"az": 40, "be": 10, "tr": 30, "ru": 0})
    entries = [{"step": n, "dev_loss": everywhere(1.0), "tokens": each} for n, each in enumerate(totals)]
    write_lines(folder / "validations.jsonl", entries)
    # 40 tokens, then none (a second validation at the end), then 40 more.
    expected = {"az": [0.75, 0.25], "be": [0.0, 0.25], "tr": [0.25, 0.5], "ru": [0.0, 0.0]}
    assert shares_over_time(StudyRun(folder, "run")) == expected
    write_lines(folder / "validations.jsonl", [{"step": 1, "dev_loss": everywhere(1.0)}])
    assert shares_over_time(StudyRun(folder, "run"))["az"] == [], "earlier versions wrote no totals"


def test_the_first_line_says_what_it_saw(tmp_path):
    found = what_it_saw(run_with(tmp_path / "run", RISING))
    arms = "az 50% (5.0 epochs), be 30% (3.0 epochs), tr 15% (0.4 epochs), ru 5% (0.1 epochs)"
    # the mean over four languages is a quarter above the others' loss, because az is 1 above
    assert found == f"1,000 target tokens: {arms}; mean dev loss 3.450, lowest 2.750 at step 6"


def test_of_many_arms_the_line_names_two(tmp_path, monkeypatch):
    monkeypatch.setattr("rota.report.ending.NAMED", 3)
    found = what_it_saw(run_with(tmp_path / "run", FALLING))
    assert (
        "most of az 50% (5.0 epochs), least of ru 5% (0.1 epochs), of 4 arms; mean dev loss 3.450, its lowest" in found
    )


@pytest.mark.parametrize(
    ("losses", "advice"),
    [
        (
            FALLING,
            "train longer (--steps 40), because the dev loss was still falling, or score it: rota evaluate {run}",
        ),
        (RISING, "rota evaluate {run} --select loss, because the dev loss rose after step 6"),
        (LEVEL, "rota evaluate {run}"),
        (FALLING[:3], "rota evaluate {run}"),  # too few validations for a trend
    ],
    ids=["falling", "rising", "level", "few"],
)
def test_what_to_do_next_follows_the_dev_loss(tmp_path, losses, advice):
    run = run_with(tmp_path / "run", losses)
    assert how_to_score(run) == advice.format(run=run)
    assert what_next(run) == f"next: {how_to_score(run)}; to look at the run: rota report {run}"


def test_alarms_are_pointed_at(tmp_path):
    run = run_with(tmp_path / "run", LEVEL, alarms=[{"step": 4, "kind": "one-arm", "arm": "az", "text": "az alone"}])
    assert what_next(run).endswith(f"; to look at the run and its 1 alarm: rota report {run}")


def test_a_run_has_a_page_without_comparisons(tmp_path):
    alarm = {"step": 4, "kind": "by-heart", "arm": "az", "text": "<az> by heart"}
    scores = {"bleu": dict(zip(SIZES, (10, 20, 30, 40), strict=True))}
    run = run_with(tmp_path / "run", FALLING, alarms=[alarm], scores=scores)
    made = make_report([run.folder], tmp_path / "report")
    assert made.tables == ["arms", "scores", "data"]
    assert made.figures == ["dev-loss-languages", "evolution-run"]
    page = made.page.read_text(encoding="utf-8")
    assert "&lt;az&gt; by heart" in page
    assert "minus" not in page.partition("<main>")[2].partition("How this was made")[0]
    table = (tmp_path / "report" / "tables" / "arms.md").read_text(encoding="utf-8")
    assert "| az | 100 | 10.0% | 500 | 50.0% | 5.0 | 4.200 | 4.200 | 20 |" in table
    means = (tmp_path / "report" / "tables" / "scores.md").read_text(encoding="utf-8")
    assert "| low-resource | 15.00 |" in means
    assert "| macro | 25.00 |" in means


def test_with_a_baseline_the_run_is_compared_as_in_a_suite(tmp_path):
    run = run_with(tmp_path / "run", FALLING)
    made = make_report([run.folder], tmp_path / "report", baseline="run")
    assert made.baseline == "run (warm-up 10%)"


def test_the_page_says_why_a_run_stopped_early(tmp_path):
    run = run_with(tmp_path / "run", LEVEL, done=16)
    stop = {"step": 16, "why": "early-stopping", "text": "no better for 5 validations"}
    (run.folder / "stops.jsonl").write_text(json.dumps(stop) + "\n")
    made = make_report([run.folder], tmp_path / "report")
    assert "It stopped early at step 16: no better for 5 validations." in made.summary


def test_with_many_languages_the_figure_is_grey(tmp_path, monkeypatch):
    monkeypatch.setattr("rota.report.single.COLOURED", 3)
    run = run_with(tmp_path / "run", FALLING)
    made = make_report([run.folder], tmp_path / "report")
    assert "Grey: the 4 languages." in made.page.read_text(encoding="utf-8")


SOURCES = {"web": {"language": "gl", "train": "web.tsv"}}
BY_SOURCE = {"gl": ("gl", "en"), "web.1": ("gl", "en"), "web.2": ("gl", "en"), "pt": ("pt", "en")}
BY_DIRECTION = {"gl-en": ("gl", "en"), "gl-en.web": ("gl", "en"), "en-gl": ("en", "gl"), "en-gl.web": ("en", "gl")}


@pytest.mark.parametrize(
    ("epochs", "tokens", "text"),
    [(0, 0, "0.0"), (0, 40, "<0.1"), (0.02, 90, "<0.1"), (0.05, 90, "0.1"), (1.25, 90, "1.2"), (30, 90, "30.0")],
)
def test_few_epochs_are_not_none(epochs, tokens, text):
    assert in_epochs(epochs, tokens) == text, "the records have three digits after the point"


def test_the_page_does_not_write_0_epochs_of_an_arm_that_was_seen(tmp_path, monkeypatch):
    monkeypatch.setitem(EPOCHS, "ru", 0.02)
    run = run_with(tmp_path / "run", [3.0, 2.0])
    assert "ru 5% (<0.1 epochs)" in [each.words for each in arm_totals(run)]
    cells = next(line.split() for line in lines_of(arm_table(run)) if line.startswith("ru "))
    assert cells[5] == "<0.1"


def run_with_arms(folder, arms, tokens, epochs):
    """Each arm has 10 pairs and the dev set of its direction."""
    folder.mkdir()
    routes = {arm: {"source": ends[0], "target": ends[1], "dev": "-".join(ends)} for arm, ends in arms.items()}
    sizes = {route["dev"]: 10 for route in routes.values()}
    about = {"arms": dict.fromkeys(arms, 10), "sizes": sizes, "low_resource": [], "routes": routes}
    (folder / "run.json").write_text(json.dumps({"config": {"data": {"sources": SOURCES}}, "data": about}))
    losses = {route["dev"]: 2.0 for route in routes.values()}
    counted = {"tokens": dict(zip(arms, tokens, strict=True)), "epochs": dict(zip(arms, epochs, strict=True))}
    write_lines(folder / "validations.jsonl", [{"step": 5, "dev_loss": losses, **counted}])
    return StudyRun(folder, "made")


def lines_of(table):
    return [" ".join(cell.text for cell in row) for row in table.rows]


def test_arms_are_added_up_by_language_and_by_source(tmp_path):
    # texts of 100, 50, 200 and 400 tokens: web has 250, which were gone through 300 / 250 times
    run = run_with_arms(tmp_path / "run", BY_SOURCE, tokens=(100, 100, 200, 600), epochs=(1.0, 2.0, 1.0, 1.5))
    assert lines_of(group_table(run)) == [
        "language gl 3 30 75.0% 400 40.0% 1.1",
        "language pt 1 10 25.0% 600 60.0% 1.5",
        "source own text of gl 1 10 25.0% 100 10.0% 1.0",
        "source web 2 20 50.0% 300 30.0% 1.2",
        "source own text of pt 1 10 25.0% 600 60.0% 1.5",
    ]


def test_a_source_is_the_same_in_both_directions(tmp_path):
    run = run_with_arms(tmp_path / "run", BY_DIRECTION, tokens=(10, 20, 30, 40), epochs=(1.0, 1.0, 1.0, 0.0))
    assert {kind: list(groups.values()) for kind, groups in arm_groups(run).items()} == {
        "language": [["gl-en", "gl-en.web", "en-gl", "en-gl.web"]],
        "direction": [["gl-en", "gl-en.web"], ["en-gl", "en-gl.web"]],
        "source": [["gl-en", "en-gl"], ["gl-en.web", "en-gl.web"]],
    }
    assert lines_of(group_table(run))[-1] == "source web 2 20 50.0% 60 60.0% \N{EN DASH}", "a text of unknown length"


def test_languages_with_one_arm_each_are_not_grouped(tmp_path):
    assert group_table(run_with(tmp_path / "run", FALLING)) is None
