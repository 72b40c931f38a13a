"""The whole report: files, page, sentences, what is missing, the command."""

import json
import re
from html.parser import HTMLParser

import pytest
from made_runs import SIZES, everywhere, make_run, make_suite, write_json

from rota.report.assemble import make_report
from rota.report.figures.teachers import scores_figure
from rota.report.folders import copy_records
from rota.report.sentences import alarms_raised, missing
from rota.report.study import read_study

UNFINISHED = "it counts in no table, its curves are drawn as far as they go."
CHRF = {"uniform": (30.0, 32.0, 34.0), "dqn": (31.0, 34.0, 37.0)}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A suite with a name to escape, a learned row that was probed, an unfinished run, missing runs, a missing row."""
    folder = tmp_path_factory.mktemp("made") / "suite"
    odd = {"label": "<DQN> & co"}
    make_suite(folder, {"uniform": {"label": "Uniform"}, "dqn": odd, "tscl": {"label": "TSCL"}}, seeds=[1, 2, 3, 4, 5])
    for row, scores in CHRF.items():
        for seed, score in enumerate(scores, start=1):
            make_one(folder, row, seed, score)
    make_run(folder / "dqn" / "seed-4", seed=4, teacher="dqn", done=10, dev_losses={10: everywhere(9.0)})
    probe = folder / "dqn" / "seed-1" / "policy"
    probe.mkdir()
    matrix = [[0.25] * 4] * 4
    for step in (4, 8):
        write_json(probe / f"{step}.json", {"step": step, "languages": list(SIZES), "matrix": matrix, "factor": 5})
    return folder


def make_one(folder, row, seed, score):
    told = [{"step": step, "arm": "az" if step % 2 else "tr", "joint_loss": 3 - step / 10} for step in range(3, 21)]
    values = {step: {"why": "exploit", "epsilon": 0.1, "scores": everywhere(step / 10)} for step in range(3, 21)}
    make_run(
        folder / row / f"seed-{seed}",
        seed=seed,
        teacher=row,
        dev_losses={10: everywhere(3.0), 20: everywhere(2.0 + seed / 10)},
        scores={"chrf": everywhere(score), "bleu": everywhere(20.0)},
        selected=12,
        decisions=values if row == "dqn" else {},
        observations=told if row == "dqn" else [],
    )


@pytest.fixture(scope="module")
def report(suite, tmp_path_factory):
    out = tmp_path_factory.mktemp("report")
    return make_report([suite], out, title="A & B"), out


class Reader(HTMLParser):
    """Collects tags, and checks that they close in order."""

    VOID = ("meta", "link")

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for name, value in attributes if name == "id"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def page(report):
    text = report[0].page.read_text(encoding="utf-8")
    reader = Reader()
    reader.feed(text)
    assert reader.open == []
    return text, reader


def test_every_table_is_written_in_three_forms_and_every_figure_as_png(report):
    made, out = report
    assert {"averages", "differences-chrf", "low-resource-bleu", "convergence", "budgets", "cost", "data"} <= set(
        made.tables
    )
    for name in made.tables:
        assert all((out / "tables" / f"{name}.{ending}").stat().st_size for ending in ("md", "tex", "csv"))
    wanted = {"proportions", "evolution-dqn", "epsilon", "q-network-dqn-4", "q-network-dqn-8", "values-dqn", "cost"}
    wanted |= {
        "dev-loss-macro",
        "dev-loss-low-resource",
        "dev-loss-high-resource",
        "pareto-dev-loss",
        "pareto-chrf",
        "differences-chrf",
    }
    assert wanted <= set(made.figures)
    for name in made.figures:
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_page_needs_nothing_but_itself(page):
    text, reader = page
    for tag, attributes in reader.tags:
        for name in ("src", "href", "xlink:href"):
            assert attributes.get(name, "#").startswith(("#", "data:")), (tag, attributes)
    assert "@import" not in text
    assert not re.search(r"url\((?!#)", text)
    assert not [tag for tag, _ in reader.tags if tag == "script"]


def test_anchors_lead_somewhere_and_no_id_is_there_twice(page):
    _, reader = page
    assert len(reader.ids) == len(set(reader.ids))
    targets = [
        attributes["href"][1:] for tag, attributes in reader.tags if tag == "a" and attributes["href"].startswith("#")
    ]
    assert set(targets) <= set(reader.ids)


def test_every_figure_stands_in_the_page_with_words_for_those_who_do_not_see_it(report, page):
    text, reader = page
    spoken = [attributes["aria-label"] for _, attributes in reader.tags if attributes.get("role") == "img"]
    assert len(spoken) == len(report[0].figures) == text.count("<svg ")
    assert all(len(words) > 20 for words in spoken)
    for name in report[0].figures:
        assert f'<figure id="figure-{name}">' in text


def test_figures_take_the_colours_of_the_page(page):
    text, _ = page
    figures = text[text.index("<main>") :]
    assert "currentColor" in figures
    assert "var(--grid)" in figures
    assert "var(--schedule-0)" in figures
    assert "DejaVu" not in figures
    assert "prefers-color-scheme: dark" in text
    assert "@media print" in text


def test_names_are_escaped(page):
    text, _ = page
    assert "<title>A &amp; B</title>" in text
    assert "&lt;DQN&gt; &amp; co" in text
    assert "<DQN>" not in text


def test_rows_that_differ_in_the_warm_up_alone_have_names_of_their_own_for_a_narrow_screen(tmp_path):
    rows = {"uniform": {"label": "Uniform", "warmup": "no"}, "warmed": {"label": "Uniform"}, "late": {"label": "Late"}}
    make_suite(tmp_path / "suite", rows, seeds=[1])
    for row in rows:
        make_run(tmp_path / "suite" / row / "seed-1", scores={"chrf": everywhere(1.0)}, dev_losses={20: everywhere(1)})
    text = make_report([tmp_path / "suite"], tmp_path / "report").page.read_text(encoding="utf-8")
    for body in re.findall(r"<tbody>(.*?)</tbody>", text, flags=re.DOTALL):
        cells = re.findall(r'<th scope="row">(.*?)</th>', body)
        alone = [re.sub(r'<span class="beside">.*?</span>|<[^>]+>', "", cell) for cell in cells]
        assert len(set(alone)) == len(alone), alone
    assert '<span class="beside">Uniform</span><span class="alone">Uniform (10%)</span>' in text


def test_the_summary_has_an_interval_for_every_difference(report):
    assert report[0].summary[0] == (
        "<DQN> & co (warm-up 10%) minus Uniform (warm-up 10%): dev loss 0.000 [0.000, 0.000]; "
        "chrF +2.00 [−0.48, +4.48]; BLEU 0.00 [0.00, 0.00]; 3 seeds. "
        "The study could have seen 0.000 (dev loss), 3.26 (chrF) and 0.00 (BLEU)."
    )
    assert "chrF, all languages: intervals that exclude zero: 0 of 1." in report[0].summary


def test_what_is_missing_is_said(report):
    assert report[0].missing == [
        "Not run: TSCL (warm-up 10%).",
        "Uniform (warm-up 10%): no run with seed 4 and 5.",
        "<DQN> & co (warm-up 10%): no run with seed 5.",
        f"<DQN> & co (warm-up 10%), seed 4: 10 of 20 steps; {UNFINISHED}",
    ]


def test_the_markdown_report_names_the_pictures_beside_it(report):
    text = (report[1] / "report.md").read_text(encoding="utf-8")
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (report[1] / picture).exists()
    assert "### Averages over all languages" in text


def test_without_probes_the_page_says_how_to_make_them(tmp_path):
    run = make_run(tmp_path / "dqn", teacher="dqn", decisions={5: {"scores": everywhere(1.0), "epsilon": 0.5}})
    make_report([run], tmp_path / "report")
    text = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert f"<code>rota policy {run} --step 4</code>" in text
    assert f"<code>rota policy {run} --step 8</code>" in text


@pytest.mark.parametrize(
    ("teacher", "about", "label"),
    [
        ("dqn", {}, "Q value"),
        ("tscl", {}, "value of the language"),
        ("mine:Own", {"teacher": {"q_network": True}}, "Q value"),
    ],
)
def test_scores_are_called_q_values_where_the_record_says_that_a_q_network_made_them(tmp_path, teacher, about, label):
    run = make_run(tmp_path / "a", teacher=teacher, decisions={5: {"scores": everywhere(1.0)}})
    write_json(run / "run.json", json.loads((run / "run.json").read_text()) | about)
    row = read_study([run]).rows["a"]
    assert f">{label}</text>" in scores_figure(row).svg


def test_one_run_without_scores_or_validations_still_makes_a_report(tmp_path):
    run = make_run(tmp_path / "alone", done=0)
    made = make_report([run], tmp_path / "report")
    assert made.summary == [f"{run} has no records of updates yet."]
    assert made.summary[0] in made.page.read_text(encoding="utf-8")


def test_one_schedule_has_nothing_to_compare_with_yet(tmp_path):
    make_run(tmp_path / "alone" / "seed-1", done=0)
    made = make_report([tmp_path / "alone"], tmp_path / "report")
    assert made.summary == []
    assert made.missing == [f"alone (warm-up 10%), seed 1: 0 of 20 steps; {UNFINISHED}"]
    assert "There is nothing to compare yet" in made.page.read_text(encoding="utf-8")


def test_scores_that_were_made_differently_are_named(tmp_path):
    for name, chosen in (("a", {}), ("b", {}), ("c", {"search": {"beam": 1, "length_penalty": 1.0}})):
        make_run(tmp_path / name / "seed-1", scores={"bleu": everywhere(20.0), "chrf": everywhere(20.0)}, chosen=chosen)
    study = read_study([tmp_path])
    assert missing(study, study.rows["a"]) == [
        f"{metric} of c (warm-up 10%) seed 1 comes from another selection, number of checkpoints or search than that "
        "of the others."
        for metric in ("chrF", "BLEU")
    ]


def test_the_command_copies_the_records_from_which_the_same_page_is_made(rota, suite, report, tmp_path):
    copy_records(suite, tmp_path / "suite")
    again, copy = tmp_path / "again", tmp_path / "copy"
    code, output, error = rota("report", tmp_path / "suite", "--out", again, "--records", copy, "--title", "A & B")
    assert code == 0, error
    assert "chrF +2.00 [−0.48, +4.48]" in output
    assert "Not run: TSCL" in output
    assert "figures, compared with Uniform (warm-up 10%)" in output
    assert "records: 0.0" in output
    assert (again / "index.html").read_bytes() == report[0].page.read_bytes()
    assert (copy / "dqn" / "seed-1" / "policy" / "4.json").exists()


def test_mistakes_of_the_command_are_one_line(rota, suite, tmp_path):
    code, _, error = rota("report", tmp_path / "nowhere")
    assert (code, error.count("\n")) == (2, 1)
    assert "nowhere'; give run folders or the folder of a suite" in error
    code, _, error = rota("report", suite, "--baseline", "moon", "--out", tmp_path / "out")
    assert "--baseline is 'moon'; the rows with runs are uniform, dqn" in error
    assert not (tmp_path / "out").exists()


def test_alarms_of_all_runs_are_listed_and_very_many_are_counted(tmp_path):
    alarm = {"step": 1_500, "kind": "one-arm", "arm": "az", "text": "az had every update & more; look at the teacher."}
    make_run(tmp_path / "a" / "seed-1", alarms=[alarm])
    make_run(tmp_path / "b" / "seed-2", alarms=[{**alarm, "arm": str(number)} for number in range(27)])
    page = make_report([tmp_path / "a"], tmp_path / "report").page.read_text(encoding="utf-8")
    assert "a (warm-up 10%), seed 1, step 1,500: az had every update &amp; more; look at the teacher." in page
    points = alarms_raised(read_study([tmp_path / "a", tmp_path / "b"]))
    assert len(points) == 26
    assert points[-1] == "3 more alarms in alarms.jsonl of the runs."


def test_a_study_without_alarms_has_no_section_of_them(report):
    assert "What training noticed" not in report[0].page.read_text(encoding="utf-8")
