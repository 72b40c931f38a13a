"""Tables of a report over hand-made records: every number below is worked out by hand."""

import csv
import io
import re

import pytest
from made_runs import LOW_RESOURCE, SIZES, everywhere, make_run, make_suite, pack

from rota.report.numbers.contrasts import by_pairs, contrast, estimate, written_difference
from rota.report.numbers.measures import BEST_LOSS, BLEU, CHRF, FINAL_LOSS, LOW, MACRO, values
from rota.report.numbers.printed import paper_row
from rota.report.sentences import missing
from rota.report.study import read_study
from rota.report.tables.budgets import budget_table, convergence_table, cost_table, data_table
from rota.report.tables.scores import ablation_tables, average_tables, language_tables
from rota.report.tables.table import Cell, Table, to_csv, to_html, to_latex, to_markdown

CHRF_SCORES = {"uniform": (30.0, 32.0, 34.0), "dqn": (31.0, 34.0, 37.0)}
"""Differences 1, 2, 3: mean 2, sd 1; t of two degrees of freedom 4.303, so the interval is 2 +- 4.303 / sqrt(3)."""


@pytest.fixture
def suite(tmp_path):
    """Two rows with three seeds, the first of which is the baseline."""
    about = {"uniform": {"label": "Uniform"}, "dqn": {"label": "DQN", "paper": "dqn/16000"}}
    make_suite(tmp_path, about, seeds=[1, 2, 3])
    for row, scores in CHRF_SCORES.items():
        for seed, score in enumerate(scores, start=1):
            losses = {10: everywhere(3.0), 20: everywhere(2.0 + seed / 10)}
            make_run(
                tmp_path / row / f"seed-{seed}",
                seed=seed,
                teacher=row,
                dev_losses=losses,
                scores={"chrf": everywhere(score), "bleu": everywhere(20.0)},
                selected=10 + seed,
            )
    return tmp_path


def cells(table, row):
    found = next(line for line in table.rows if line[0].text == row)
    return dict(zip(table.columns, found, strict=True))


def test_a_cell_is_mean_and_standard_deviation_over_seeds_beside_the_papers_number(suite):
    study = read_study([suite])
    table = average_tables(study, study.rows["uniform"])[0]
    assert cells(table, "Uniform")["chrF"].text == "32.00 ± 2.00"
    assert cells(table, "DQN")["chrF"].text == "34.00 ± 3.00"
    assert cells(table, "DQN")["dev loss"].text == "2.200 ± 0.100"
    assert cells(table, "DQN")["BLEU"] == Cell("20.00 ± 0.00", "", "29.30")
    assert cells(table, "DQN")["seeds"].text == "3"


def test_a_difference_is_paired_by_seed_and_has_an_interval(suite):
    study = read_study([suite])
    found = contrast(study.rows["dqn"], study.rows["uniform"], CHRF, MACRO)
    assert (found.mean, found.spread, found.seeds) == (2.0, 1.0, 3)
    assert found.interval == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), abs=1e-3)
    assert written_difference(study.rows["dqn"], study.rows["uniform"], CHRF, MACRO) == "+2.00 [−0.48, +4.48]"


def test_the_table_of_differences_says_what_could_have_been_seen(suite):
    study = read_study([suite])
    tables = {table.name: table for table in average_tables(study, study.rows["uniform"])}
    row = tables["differences-chrf"].rows[0]
    assert [cell.text for cell in row[:4]] == ["DQN", "10%", "3", "+2.00 [−0.48, +4.48]"]
    detectable = contrast(study.rows["dqn"], study.rows["uniform"], CHRF, LOW).smallest_detectable
    assert row[4].text == f"{detectable:.2f}"
    assert detectable > 2.48, "a study sees less than its interval is wide"


def test_one_seed_has_no_spread_and_no_interval_and_says_so(tmp_path):
    make_run(tmp_path / "a", scores={"chrf": everywhere(30.0)})
    make_run(tmp_path / "b", scores={"chrf": everywhere(31.5)}, teacher="proportional")
    study = read_study([tmp_path])
    averages, differences = average_tables(study, study.rows["a"])[:2]
    assert cells(averages, "b")["chrF"].text == "31.50"
    assert cells(differences, "b")["macro"].text == "+1.50 (one seed: no interval)"
    assert cells(differences, "b")["pairs"].text == "1"
    assert contrast(study.rows["b"], study.rows["a"], CHRF, MACRO) is None


def test_only_the_seeds_that_both_rows_have_are_compared(suite, tmp_path):
    make_run(tmp_path / "dqn" / "seed-4", seed=4, teacher="dqn", scores={"chrf": everywhere(99.0)})
    study = read_study([suite])
    assert set(by_pairs(study.rows["dqn"], study.rows["uniform"], CHRF, MACRO)) == {1, 2, 3}
    assert estimate(study.rows["dqn"], CHRF, MACRO).n == 4


def test_groups_are_means_over_languages_and_the_lowest_loss_is_taken_for_each(tmp_path):
    early = {"az": 1.0, "be": 3.0, "tr": 5.0, "ru": 5.0}
    late = {"az": 2.0, "be": 1.0, "tr": 6.0, "ru": 2.0}
    run = read_study([make_run(tmp_path / "a", dev_losses={10: early, 20: late})]).any_run
    assert values(run, FINAL_LOSS) == {**late, "low-resource": 1.5, "high-resource": 4.0, "macro": 2.75}
    assert values(run, BEST_LOSS) == {
        "az": 1,
        "be": 1,
        "tr": 5,
        "ru": 2,
        "low-resource": 1.5,
        "high-resource": 4,
        "macro": 2.75,
    }


def test_a_language_table_has_a_column_for_each_language_of_the_group(suite):
    study = read_study([suite])
    tables = {table.name: table for table in language_tables(study, study.rows["uniform"])}
    assert tables["low-resource-bleu"].columns == ("schedule", "warm-up", "seeds", "az", "be", "mean")
    assert tables["high-resource-chrf"].columns == ("schedule", "warm-up", "seeds", "tr", "ru", "mean")
    assert cells(tables["low-resource-bleu"], "DQN")["az"].paper == "15.62"
    assert cells(tables["low-resource-bleu"], "Uniform")["az"].paper == ""
    assert cells(tables["low-resource-chrf"], "DQN")["az"].paper == "", "the paper has no chrF"


def test_the_model_that_was_selected_stands_for_the_run(tmp_path):
    run = make_run(tmp_path / "a", scores={"bleu": everywhere(10.0)})
    selected = make_run(
        tmp_path / "b", scores={"bleu": everywhere(12.0)}, chosen={"select": "low-resource", "combine": "ensemble"}
    )
    both = (
        (run / "evals.jsonl").read_text() + (selected / "evals.jsonl").read_text() + (run / "evals.jsonl").read_text()
    )
    (run / "evals.jsonl").write_text(both)
    assert values(read_study([run]).any_run, BLEU)["macro"] == 12.0
    averaged = (run / "evals.jsonl").read_text().replace('"select": "low-resource", ', "")
    (run / "evals.jsonl").write_text(averaged)
    assert values(read_study([run]).any_run, BLEU)["macro"] == 10.0, (
        "without a selection the last step's, not a combination"
    )
    (run / "evals.jsonl").write_text("".join(line for line in averaged.splitlines(True) if "ensemble" in line))
    assert values(read_study([run]).any_run, BLEU)["macro"] == 12.0, "a combination where nothing else was scored"


def test_convergence_counts_the_steps_of_the_best_model(suite):
    table = convergence_table("convergence", "Steps", list(read_study([suite]).rows.values()))
    row = [cell.text for cell in table.rows[1]]
    assert row == ["DQN", "10%", "3", "12 ± 1", "60%", "20 ± 0", "100%", "52,000 (35%)"]


def test_budgets_and_cost_are_relative_to_the_baseline(tmp_path):
    make_run(tmp_path / "a", time={"wall": 60.0, "cpu": 30.0, "updates": 40.0})
    make_run(tmp_path / "b", teacher="dqn", time={"wall": 90.0, "cpu": 45.0, "updates": 60.0})
    study = read_study([tmp_path])
    budgets = budget_table(study, study.rows["a"])
    assert [cell.text for cell in budgets.rows[1]] == ["b", "10%", "1", "20", "2,000", "1.000"]
    cost = cells(cost_table(study, study.rows["a"]), "b")
    assert (cost["wall"].text, cost["processor"].text, cost["relative"].text) == ("3.0", "1.5", "1.50")
    assert (cost["updates"].text, cost["validations"].text, cost["rest"].text) == ("2.0", "0.2", "0.8")


def test_the_corpus_is_a_table_too(tmp_path):
    table = data_table(read_study([make_run(tmp_path / "a")]))
    assert [cell.text for cell in table.rows[0]] == ["az", "low-resource", "100", "10.0%", "7", "8", "–"]


def test_an_ablation_is_compared_with_the_default_of_its_teacher(tmp_path):
    make_suite(
        tmp_path,
        {
            "uniform": {},
            "dqn": {"label": "DQN"},
            "dqn-tau": {"label": "tau = 0.5", "table": "dqn", "paper": "dqn/tau-0.5"},
        },
        [1, 2, 3],
    )
    for row, score in (("uniform", 50.0), ("dqn", 20.0), ("dqn-tau", 21.0)):
        for seed in (1, 2, 3):
            make_run(
                tmp_path / row / f"seed-{seed}",
                seed=seed,
                teacher=row[:3] if "dqn" in row else row,
                scores={"bleu": everywhere(score + seed)},
            )
    study = read_study([tmp_path])
    [table] = ablation_tables(study)
    assert [row[0].text for row in table.rows] == ["DQN", "tau = 0.5"]
    assert cells(table, "tau = 0.5")["az"] == Cell("23.00 ± 1.00", "++", "15.55"), (
        "a difference of exactly 1 under all seeds"
    )
    assert "DQN (warm-up 10%)" in table.note
    assert "tau = 0.5" not in [row[0].text for row in average_tables(study, study.rows["uniform"])[0].rows]


def test_the_baseline_is_uniform_with_warm_up_unless_it_is_named(tmp_path):
    make_run(tmp_path / "first", teacher="dqn")
    make_run(tmp_path / "plain", warmup=None)
    make_run(tmp_path / "warmed")
    study = read_study([tmp_path])
    assert study.baseline(None).name == "warmed"
    assert study.baseline("plain").name == "plain"
    with pytest.raises(ValueError, match="--baseline is 'moon'; the rows with runs are first, plain, warmed"):
        study.baseline("moon")


def test_the_papers_numbers_are_found_by_their_keys():
    assert paper_row("uniform/16000").scores["bleu"]["az"] == 15.42
    assert paper_row("dqn/16000").scores["bleu"]["macro"] == 29.30, "as printed"
    assert paper_row("dqn,16000").scores["bleu"]["low-resource"] == pytest.approx((15.62 + 21.11 + 34.54 + 33.02) / 4)
    assert paper_row("tscl/alpha-0.3").best_step is None
    assert paper_row("dqn/gamma-0.01").best_step == 36_000
    assert paper_row(None) is None
    with pytest.raises(ValueError, match="the paper has no row 'dqn/moon'"):
        paper_row("dqn/moon")


def test_a_row_that_the_paper_does_not_have_is_named_and_the_report_goes_on_without_its_numbers(suite):
    rows = {"uniform": {}, "dqn": {"label": "DQN", "paper": "dqn/1600"}}
    make_suite(suite, rows, seeds=[1, 2, 3])
    study = read_study([suite])
    assert cells(average_tables(study, study.rows["uniform"])[0], "DQN")["BLEU"] == Cell("20.00 ± 0.00")
    assert convergence_table("convergence", "Steps", [study.rows["dqn"]]).rows[0][-1].text == ""
    assert missing(study, study.rows["uniform"]) == [
        "DQN (warm-up 10%): the row 'dqn' of suite.json has paper: 'dqn/1600', which is not a row of the paper; its "
        "numbers are left out. The nearest is 'dqn-16000'."
    ]


ODD = Table(
    "odd",
    "a_b & 50 % <of> {it}",
    "caption with $ and ^",
    ("x|y", "z"),
    [[Cell("[1] \\ ~ #", "−−", "9.99"), Cell("<b>", "+")]],
    text_columns=1,
)


def test_odd_characters_are_escaped_in_every_form():
    page = to_html(ODD)
    assert "&lt;b&gt;<sup>+</sup>" in page
    assert "<b>" not in page
    markdown = to_markdown(ODD).splitlines()
    assert markdown[4:6] == ["| x\\|y | z |", "| :-- | --: |"]
    latex = to_latex(ODD)
    assert r"a\_b \& 50 \% <of> \{it\}. caption with \$ and \textasciicircum{}" in latex
    assert r"{}[1] \textbackslash{} \textasciitilde{} \#$^{--}$ {\small(9.99)} & <b>$^{+}$ \\" in latex


def test_latex_is_balanced_and_every_line_has_all_columns(suite):
    study = read_study([suite])
    for table in [ODD, *average_tables(study, study.rows["uniform"])]:
        latex = re.sub(r"\\[\\{}$%&#_]", lambda found: found[0] if found[0] == "\\\\" else "", to_latex(table))
        assert latex.count("{") == latex.count("}")
        assert latex.count("$") % 2 == 0
        assert len(re.findall(r"\\begin", latex)) == len(re.findall(r"\\end", latex)) == 2
        lines = [line for line in latex.splitlines() if line.endswith(r"\\")]
        assert {line.count("&") for line in lines} == {len(table.columns) - 1}


def test_csv_holds_the_numbers_unrounded(suite):
    study = read_study([suite])
    tables = {table.name: table for table in average_tables(study, study.rows["uniform"])}
    lines = list(csv.DictReader(io.StringIO(to_csv(tables["differences-chrf"]))))
    macro = next(line for line in lines if line["scope"] == "macro")
    assert (macro["row"], macro["seeds"], macro["mean"], macro["difference"]) == ("dqn", "3", "34.0", "2.0")
    assert float(macro["low"]) == pytest.approx(2 - 4.30265 / 3**0.5, abs=1e-4)
    assert float(macro["p_sign_flip"]) == 0.25, "2 of 2 ** 3 sign flips"


def test_gzipped_records_are_read_like_plain_ones(tmp_path):
    plain = make_run(tmp_path / "a", dev_losses={20: everywhere(2.0)})
    before = read_study([plain]).any_run.history
    pack(plain / "steps.jsonl")
    after = read_study([plain]).any_run.history
    assert after.tokens == before.tokens == dict.fromkeys(SIZES, 500)
    assert set(LOW_RESOURCE) < set(after.tokens)
