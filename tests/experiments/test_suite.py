"""Suites in YAML: what a few lines mean, and what is said about mistakes."""

import re
from pathlib import Path

import pytest
from suite_cases import SUITE, write_suite
from typer.main import get_command

from rota.cli import app
from rota.experiments.jobs import describe, plan
from rota.experiments.suite import load_suite, parse_seeds
from rota.experiments.suites import open_suite
from rota.settings import ConfigError

RUNS = Path("runs/x")


def suite_of(tmp_path, text):
    (tmp_path / "mine.yaml").write_text(text)
    return load_suite(tmp_path / "mine.yaml")


def plan_all(suite, **options):
    return plan(suite, RUNS, **{"rows": list(suite.rows), "seeds": suite.seeds} | options)


def test_a_row_changes_some_values_of_the_base_and_keeps_the_others(tmp_path):
    suite = suite_of(tmp_path, SUITE + "  long: {training: {steps: 500}, student: {learning_rate: {peak: 0.02}}}\n")
    values = suite.values("long", 3, RUNS)
    assert values["training"]["steps"] == 500
    assert values["training"]["tokens"] == 150
    assert values["student"]["learning_rate"] == {"peak": 0.02}
    assert values["student"]["width"] == 32
    assert (values["name"], values["seed"]) == ("long", 3)
    assert suite.values("uniform", 1, RUNS)["training"]["steps"] == 80, "other rows are not touched"


def test_a_teacher_is_replaced_as_a_whole(tmp_path):
    base = "base: {data: {corpus: synthetic}, teacher: {name: temperature, temperature: 2}}\n"
    suite = suite_of(tmp_path, base + "rows: {u: {teacher: {name: uniform}}}")
    assert suite.values("u", 1, RUNS)["teacher"] == {"name": "uniform"}, "without the temperature of the base"


def test_all_rows_share_the_prepared_data_unless_they_change_them(tmp_path):
    suite = suite_of(tmp_path, SUITE + "  more: {data: {subwords: {size: 500}}}\n")
    assert suite.values("uniform", 1, RUNS)["data"]["folder"] == "prepared/mine"
    assert suite.values("more", 1, RUNS)["data"]["folder"] == "prepared/mine-more"


def test_placeholders_are_filled_in_and_other_braces_stay(tmp_path):
    teacher = '{name: replay-proportions, run: "{runs}/uniform/seed-{seed}"}'
    suite = suite_of(tmp_path, SUITE + f'  again: {{teacher: {teacher}, data: {{path: "{{language}}"}}}}\n')
    values = suite.values("again", 4, RUNS)
    assert values["teacher"]["run"] == "runs/x/uniform/seed-4"
    assert values["data"]["path"] == "{language}"


def test_a_run_that_reads_another_one_needs_it(tmp_path):
    teacher = '{name: replay-proportions, run: "{runs}/uniform/seed-{seed}"}'
    suite = suite_of(tmp_path, SUITE + f"  again: {{teacher: {teacher}}}\nseeds: 2\n")
    jobs = {job.name: job for job in plan_all(suite)}
    assert list(jobs)[:4] == ["uniform/seed-1", "warm/seed-1", "again/seed-1", "uniform/seed-2"], "seed by seed"
    assert jobs["again/seed-2"].needs == ("uniform/seed-2",)
    assert jobs["warm/seed-2"].needs == ()


def test_runs_that_wait_for_each_other_are_refused(tmp_path):
    row = '  {}: {{teacher: {{name: replay-proportions, run: "{{runs}}/{}/seed-{{seed}}"}}}}\n'
    suite = suite_of(tmp_path, SUITE + row.format("one", "two") + row.format("two", "one"))
    with pytest.raises(ConfigError, match="one/seed-1 reads two/seed-1, which waits for it"):
        plan_all(suite)


def test_the_base_may_be_a_config_beside_the_suite(tmp_path):
    (tmp_path / "my.yaml").write_text("data: {corpus: synthetic}\ntraining: {steps: 77}\n")
    suite = suite_of(tmp_path, "base: my.yaml\nrows: {u: {teacher: uniform}}\n")
    assert suite.values("u", 1, RUNS)["training"]["steps"] == 77
    assert suite.name == "mine"


def test_a_base_that_names_its_folder_shares_its_prepared_data_with_the_suite(tmp_path):
    for data, folder in (("", "prepared/mine"), (", folder: prepared/my", "prepared/my")):
        (tmp_path / "my.yaml").write_text(f"data: {{corpus: synthetic{data}}}\n")
        suite = suite_of(tmp_path, "base: my.yaml\nrows: {u: {teacher: uniform}}\n")
        assert suite.values("u", 1, RUNS)["data"]["folder"] == suite.values("u", 2, RUNS)["data"]["folder"] == folder


def test_a_config_is_no_suite_and_its_place_in_one_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"mine\.yaml is a config, not a suite: put it under base: in a suite"):
        suite_of(tmp_path, "data: {corpus: synthetic}\ntraining: {steps: 77}\n")


@pytest.mark.parametrize(
    ("written", "seeds"),
    [(3, (1, 2, 3)), ("2", (1, 2)), ("4,7", (4, 7)), ("7,", (7,)), ([5, 6], (5, 6))],
)
def test_seeds_are_a_number_or_a_list(written, seeds):
    assert parse_seeds(written) == seeds


@pytest.mark.parametrize("written", [0, "0", "many", "1,x", [1, 1], True, -3, []])
def test_seeds_that_are_neither_are_refused(written):
    with pytest.raises(ValueError, match="seeds"):
        parse_seeds(written)


def test_a_seed_that_would_count_as_a_thousand_runs_is_refused_with_what_to_write():
    assert len(parse_seeds("1000")) == 1000
    with pytest.raises(ValueError, match="means the seeds 1 to 1011; for seed 1011 alone write '1011,'"):
        parse_seeds("1011")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("rows:", "rowes:"), "unknown key 'rowes'; did you mean 'rows'"),
        (("{teacher: uniform}", "{techer: uniform}"), "unknown key 'rows.uniform.techer'; did you mean 'teacher'"),
        (("  uniform:", "  uni form:"), "rows.uni form: 'uni form' is not a name; use letters, digits, '-', '_' and"),
        (("  uniform:", "  ..:"), "rows...: '..' is not a name"),
        (("  uniform:", "  1:"), "rows.1: 1 is not text; write the name in quotes: '1'"),
        (("base:\n", "name: .\nbase:\n"), "name: '.' is not a name"),
        (
            ("base:\n", "over: {seed: 9}\nbase:\n"),
            "over: seed in over would make all seeds of a row the same run; use ",
        ),
        (("base:\n", "over: {name: zz}\nbase:\n"), "over: name in over would name all runs the same"),
        ((SUITE.partition("rows:")[2], " {}"), "rows: there is none; write at least one, such as uniform: {teacher"),
        (("label: Proportional", "table: best"), "rows.warm.table"),
        (("base:\n", "seeds: some\nbase:\n"), "seeds 'some' are not understood"),
        (("base:\n", "default: [moon]\nbase:\n"), "default names the row 'moon'; the rows are uniform, warm"),
    ],
)
def test_a_mistake_in_a_suite_is_one_line_with_its_place(tmp_path, change, message):
    with pytest.raises(ConfigError) as error:
        suite_of(tmp_path, SUITE.replace(*change))
    assert "mine.yaml" in str(error.value)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("teacher: uniform", "teacher: unifrom"), "unknown name 'unifrom'; did you mean 'uniform'"),
        (("tokens: 150", "tokens: many"), "training.tokens"),
        (("warmup: 30", "warmup: 300"), "teacher.warmup lasts 300 steps and the run 80"),
        (
            ("{name: proportional, warmup: 30}", "{name: two-phase, switch: 80}"),
            "teacher.switch comes at step 80 and the run has 80: the second schedule would never decide; write for",
        ),
    ],
)
def test_a_mistake_in_a_row_is_found_before_anything_runs(tmp_path, change, message):
    suite = suite_of(tmp_path, SUITE.replace(*change))
    with pytest.raises(ConfigError, match=message):
        plan_all(suite)


STARTS = "  bad: {student: {start: %s}, teacher: uniform}\n"


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("row", "message"),
    [
        (STARTS % "models/nllb", "student.start: models/nllb does not exist; give a run, its export, or an M2M100"),
        (STARTS % "text", "student.start: text has neither run.json nor config.json; give a run"),
        (STARTS % '"{runs}/warm/seed-1"', "does not exist; give a run, its export, or an M2M100 or NLLB checkpoint; "
         "row 'warm' of this suite trains it: run that one first, with --rows warm"),
    ],
)  # fmt: skip
def test_a_start_that_is_not_there_is_refused_before_anything_is_prepared(
    tmp_path, monkeypatch, rota, row, message, options
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    write_suite(tmp_path, more=row)
    code, printed, error = rota("compare", "small.yaml", *options)
    assert (code, printed) == (2, "")
    assert error.startswith("error: row 'bad': ")
    assert message in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.yaml", "text"]
    assert rota("compare", "small.yaml", "--rows", "uniform", "--dry-run")[0] == 0


@pytest.mark.parametrize("options", [(), ("--dry-run",)])
def test_so_is_a_goal_that_the_corpus_of_a_row_cannot_have(tmp_path, monkeypatch, rota, options):
    monkeypatch.chdir(tmp_path)
    write_suite(tmp_path, more="  bad: {data: {low_resource: []}, teacher: uniform}\n")
    code, printed, error = rota("compare", "small.yaml", "--set", "goal=low-resource", *options)
    assert (code, printed) == (2, "")
    assert error.startswith("error: row 'bad': goal: low-resource: the corpus has no such language; set data.low_")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["small.yaml"]


def test_a_run_that_has_begun_does_not_need_its_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    suite = load_suite(write_suite(tmp_path, more=STARTS % "models/gone"))
    with pytest.raises(ConfigError, match="row 'bad': student.start: models/gone does not exist"):
        plan_all(suite)
    run = RUNS / "bad" / "seed-1"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    assert len(plan_all(suite)) == 3


def test_rows_are_chosen_by_name_table_or_pattern():
    suite = open_suite("laptop")
    assert suite.choose("main") == [
        "uniform",
        "proportional",
        "uniform-warmup",
        "proportional-warmup",
        "shuffled",
        "tscl",
        "dqn",
    ]
    assert suite.choose("dqn") == ["dqn"], "a row's own name comes first"
    assert suite.choose("dqn-tau-*, uniform") == ["uniform", "dqn-tau-0.5", "dqn-tau-0.995"]
    assert suite.choose(None) == [*suite.choose("main"), "temperature-2", "temperature-5", "replay-proportions"]
    assert suite.choose("all") == list(suite.rows)
    with pytest.raises(ValueError, match="no row 'moon' in suite 'laptop'; it has uniform, "):
        suite.choose("moon")


def test_another_corpus_takes_the_place_of_the_whole_section(tmp_path):
    suite = open_suite("laptop", corpus="synthetic")
    assert suite.name == "laptop-synthetic"
    assert suite.base["data"] == {"corpus": "synthetic", "subwords": {"size": 1500}}
    other = open_suite(str(write_suite(tmp_path)), corpus="catalogues")
    assert other.base["data"] == {"corpus": "catalogues", "subwords": {"size": "4k"}}, "no low_resource of before"
    assert open_suite("laptop", corpus="catalogues").name == "laptop", "its own corpus"
    (tmp_path / "mine.yaml").write_text("data: {languages: [az, tr], train: t.tsv, dev: d.tsv, test: e.tsv}\n")
    mine = open_suite("laptop", corpus=str(tmp_path / "mine.yaml"))
    assert mine.name == "laptop-mine"
    assert mine.base["data"]["languages"] == ["az", "tr"]


def test_unknown_suites_and_corpora_name_the_known_ones(tmp_path):
    with pytest.raises(
        ValueError, match="no suite 'lptop'; give laptop, controls, order, paper, example, or the path of a YAML"
    ):
        open_suite("lptop")
    with pytest.raises(ValueError, match="no corpus 'moon'; give catalogues, debian, synthetic, ted8, or a YAML file"):
        open_suite("laptop", corpus="moon")
    (tmp_path / "empty.yaml").write_text("student: {preset: tiny}\n")
    with pytest.raises(ConfigError, match="empty.yaml has no section data"):
        open_suite("laptop", corpus=str(tmp_path / "empty.yaml"))


def test_another_size_of_ones_own_suite_keeps_the_proportions(tmp_path):
    suite = open_suite(str(write_suite(tmp_path)), steps=40, tokens=50)
    values = suite.values("warm", 1, RUNS)
    assert values["training"]["steps"] == 40
    assert values["training"]["tokens"] == 50
    assert values["training"]["checkpoint_every"] == 10
    assert values["teacher"]["warmup"]["until"] == 15
    assert values["student"]["lr_warmup"] == 10
    assert values["student"]["learning_rate"]["peak"] == 0.01


def test_the_description_for_reports_has_every_row_and_keeps_those_of_before(tmp_path):
    suite = load_suite(write_suite(tmp_path))
    [row] = describe(suite, tmp_path, plan(suite, tmp_path, rows=["warm"], seeds=[2]))["rows"]
    told = {"name": "warm", "label": "Proportional", "warmup": "30", "table": "other"}
    assert row == told | {"paper": None, "place": None, "seeds": None}
    before = '{"seeds": [1], "rows": [{"name": "warm"}, {"name": "gone"}]}'
    (tmp_path / "suite.json").write_text(before)
    found = describe(suite, tmp_path, plan(suite, tmp_path, rows=["uniform"], seeds=[2]))
    assert found["seeds"] == [1, 2]
    assert [row["name"] for row in found["rows"]] == ["uniform", "warm", "gone"]
    assert found["rows"][0]["warmup"] == "no"


def test_the_description_has_a_rows_own_seeds_whichever_are_run_now(tmp_path):
    suite = load_suite(write_suite(tmp_path, more="  few: {teacher: uniform, seeds: 3}\nseeds: 5\n"))
    found = describe(suite, tmp_path, plan(suite, tmp_path, rows=["uniform", "few"], seeds=[7]))
    assert {row["name"]: row["seeds"] for row in found["rows"]} == {"uniform": None, "few": [1, 2, 3]}


def test_the_help_names_tables_and_patterns_that_reach_more_than_one_row():
    """In every built-in suite ``dqn`` and ``tscl`` are rows, so that the tables of these names are out of reach."""
    text = next(found.help for found in get_command(app).commands["compare"].params if found.name == "rows")
    tables = re.search(r"tables \((.*?)\)", text)[1].split(", ")
    patterns = re.findall(r"'(\S+?)'", text)
    assert tables
    assert patterns
    assert all(len(open_suite("laptop").choose(part)) > 1 for part in (*tables, *patterns))
