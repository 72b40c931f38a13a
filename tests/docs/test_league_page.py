"""The page of the league: how its results are made from the tables of a report, and the plan of its longer runs."""

import csv
import importlib.util
from pathlib import Path

import pytest

from rota.experiments.suites import open_suite
from rota.plan import find_plan, write_plan

LEAGUE = Path(__file__).parents[2] / "docs" / "results" / "league"
NOTHING_LONGER = "Nothing yet: the longer runs have not begun."
PLANNED = {"row": "align", "endpoint": "test-loss", "interest": 0.03, "seeds": 8, "at": "updates", "verdict": "better"}
REGRETS = (
    {"row": "uniform", "regret": 0.05},
    {"row": "align", "regret": 0.012},
    {"row": "caps", "regret": 0.2},
    {"row": "align-replayed", "regret": 0.001},
)


def module():
    spec = importlib.util.spec_from_file_location("league_results", LEAGUE / "results.py")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def line(contrast, corpora, difference, p, **more):
    low, high = round(difference - 0.02, 3), round(difference + 0.02, 3)
    numbers = {"difference": difference, "low": low, "high": high, "p_holm": p}
    references = {"minus": "uniform temperature-2 temperature-5", "best": "temperature-5"}
    return PLANNED | references | {"contrast": contrast, "corpora": corpora} | numbers | more


def write(path, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, sorted({key for each in lines for key in each}))
        writer.writeheader()
        writer.writerows(lines)


@pytest.fixture
def report(tmp_path):
    lines = [
        line("messy", "messy-debian", -0.05, 0.001),
        line("messy", "messy-ted8-small", -0.02, 0.01),
        line("messy-at-equal-time", "messy-debian", -0.04, 0.06, at="time"),
        line("clean", "debian", 0.005, 0.4, verdict="no difference of interest"),
        line("clean", "catalogues", 0.04, 0.01, verdict="worse"),
        line("timing", "messy-debian", 0.001, 1.0, minus="align-replayed", best=""),
        line("regret", "debian catalogues messy-debian", -0.01, 0.2, verdict="not decided"),
    ]
    write(tmp_path / "report" / "tables" / "planned.csv", lines)
    write(tmp_path / "report" / "tables" / "regret-test-loss.csv", REGRETS)
    return tmp_path / "report"


def test_the_planned_table_says_what_was_compared_and_what_came_out(report):
    text = module().results(report)
    assert "| `align` minus the best of 3 (`temperature-5`) | messy-debian | −0.050 [−0.070, −0.030] | 0.001 |" in text
    assert "| `align` minus the best of 3 (`temperature-5`), equal time | messy-debian | " in text
    assert "| `align` minus `align-replayed` | messy-debian | +0.001 [−0.019, +0.021] | 1 | 8 | better |" in text
    assert "| mean of 3 | −0.010 " in text


def test_what_was_hoped_for_is_counted(report):
    text = module().results(report)
    # -0.02 is less than the interest, and p = 0.06 is not below 0.05.
    assert "ahead at all with p below 0.05 after Holm: in 1 of 3 tests (test loss" in text
    assert "shown to be behind in 1 of 2 tests; the whole interval is less than 0.03 nats behind in 1." in text
    assert "`align` has place 1 of 3. The first three: `align` 0.012, `uniform` 0.050, `caps` 0.200." in text


def test_results_take_the_place_of_what_stood_between_the_comments(tmp_path):
    made, page = module(), tmp_path / "README.md"
    page.write_text(f"before\n{made.BEGIN}\nold\n{made.END}\nafter\n", encoding="utf-8")
    made.fill(page, "new")
    made.fill(page, "newer")
    assert page.read_text(encoding="utf-8") == f"before\n{made.BEGIN}\n\nnewer\n\n{made.END}\nafter\n"
    page.write_text("no comments", encoding="utf-8")
    with pytest.raises(ValueError, match="lacks one of the two comments"):
        made.fill(page, "new")


def test_nothing_is_read_before_the_planned_runs_are_there(tmp_path):
    plan = find_plan(LEAGUE / "runs")
    write_plan(plan.plan, tmp_path)
    with pytest.raises(SystemExit, match=r"^236 planned runs are missing, such as catalogues/align/seed-1; results"):
        module().main(tmp_path, tmp_path / "out")


def test_the_page_shows_the_tables_beside_it():
    made = module()
    text = (LEAGUE / "README.md").read_text(encoding="utf-8").split(made.BEGIN)[1].split(made.END)[0].strip()
    report = LEAGUE / "report"
    assert text == (made.results(report) if report.exists() else "Nothing yet: the runs of the plan are not all done.")
    longer = LEAGUE / "bleu" / "report"
    text = (LEAGUE / "README.md").read_text(encoding="utf-8").split(made.LONGER)[1].split(made.END)[0].strip()
    wanted = made.longer_results(longer, ("debian", "catalogues")) if longer.exists() else NOTHING_LONGER
    assert text == wanted


AVERAGES = [
    {"row": row, "metric": metric, "scope": scope, "mean": mean, "sd": 0.25}
    for row, mean in (("uniform", 10.04), ("align", 11.96))
    for metric in ("bleu", "chrf", "dev-loss")
    for scope in ("macro", "low-resource")
]


def test_the_longer_runs_are_shown_by_both_scores_on_every_corpus(tmp_path):
    made, report = module(), tmp_path / "report"
    lines = [
        line("best-temperature", "", 1.5, 0.5, endpoint=endpoint, seeds=2, verdict="not decided")
        for endpoint in ("bleu", "chrf")
    ]
    write(report / "tables" / "planned.csv", lines)
    for number, corpus in enumerate(("debian", "catalogues")):
        shifted = [each | {"mean": each["mean"] + 10 * number + 20 * (each["metric"] == "chrf")} for each in AVERAGES]
        write(report / corpus / "tables" / "averages.csv", shifted)
    text = made.longer_results(report, ("debian", "catalogues"))
    assert (
        "| `align` minus the best of 3 (`temperature-5`) | chrF | +1.50 [+1.48, +1.52] | 0.5 | 2 | not decided |"
        in text
    )
    assert (
        "| schedule | debian: BLEU | debian: chrF | catalogues: BLEU | catalogues: chrF |\n|---|---|---|---|---|"
        in text
    )
    assert "| `uniform` | 10.0 (0.2) | 30.0 (0.2) | 20.0 (0.2) | 40.0 (0.2) |" in text
    assert "| `align` | 12.0 (0.2) | 32.0 (0.2) | 22.0 (0.2) | 42.0 (0.2) |" in text
    page = tmp_path / "README.md"
    page.write_text(f"{made.BEGIN}\nshort\n{made.END}\nthen\n{made.LONGER}\nold\n{made.END}\nend\n", encoding="utf-8")
    made.fill(page, "new", made.LONGER)
    assert page.read_text(encoding="utf-8") == (
        f"{made.BEGIN}\nshort\n{made.END}\nthen\n{made.LONGER}\n\nnew\n\n{made.END}\nend\n"
    )


def test_the_longer_runs_are_read_when_all_are_done(tmp_path):
    write_plan(open_suite(str(LEAGUE / "bleu.yaml")).plan, tmp_path)
    with pytest.raises(SystemExit, match=r"^16 planned runs are missing, such as debian/uniform/seed-1; results"):
        module().main(tmp_path, tmp_path / "out")


def test_the_longer_runs_have_the_student_and_the_schedules_of_the_league():
    league, longer = open_suite(str(LEAGUE / "plan.yaml")), open_suite(str(LEAGUE / "bleu.yaml"))
    assert longer.base["student"] == league.base["student"]
    assert {name: row.teacher for name, row in longer.rows.items()} == {
        name: league.rows[name].teacher for name in ("uniform", "temperature-2-tokens", "temperature-5", "align")
    }
    assert [test.endpoint for test in longer.plan.tests()] == ["bleu", "chrf"]
