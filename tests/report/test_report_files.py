"""Files of a report and of its runs: damaged ones, lost ones, those of an earlier report, places that cannot be."""

import json

import pytest
from made_runs import everywhere, make_run, make_suite, write_json
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rota.report.assemble import make_report
from rota.report.folders import check_target
from rota.report.sentences import missing
from rota.report.study import read_study


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """Which files there are is asked here, not what the figures look like: drawing them takes most of the time."""
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda layout, figure: None)
    monkeypatch.setattr(FigureCanvasSVG, "print_svg", lambda canvas, file, **_: file.write("<svg></svg>"))
    monkeypatch.setattr(FigureCanvasAgg, "print_png", lambda canvas, file, **_: file.write(b""))


@pytest.mark.parametrize(
    ("suite", "said"),
    [
        ({"rows": 3}, "rows is 3, not a list of rows with names"),
        ({"rows": [{"label": "DQN"}]}, "rows is .*, not a list of rows with names"),
        ({"rows": [], "seeds": "1 to 5"}, "seeds is '1 to 5', not a list of whole numbers"),
        ({"rows": [{"name": "dqn", "seeds": 4}]}, "seeds is 4, not a list of whole numbers"),
        ([], "not a JSON object"),
    ],
)
def test_a_damaged_suite_is_one_line_with_its_path_and_the_remedy(tmp_path, suite, said):
    make_run(tmp_path / "dqn" / "seed-1")
    write_json(tmp_path / "suite.json", suite)
    with pytest.raises(
        ValueError, match=rf"suite.json is damaged \({said}\); restore it, or delete it: rows are then named after"
    ):
        read_study([tmp_path])
    (tmp_path / "suite.json").unlink()
    assert list(read_study([tmp_path]).rows) == ["dqn"], "the remedy helps"


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        ((), None, "it has no config"),
        (("seed",), None, "it has no seed"),
        (("seed",), "one", "seed is 'one', not a whole number"),
        (("config", "training", "steps"), None, "it has no config.training.steps"),
        (("config", "training"), 5, "it has no config.training.steps"),
        (("data", "sizes"), [], r"data.sizes is \[\], not a mapping"),
        (("hardware",), None, "it has no hardware.machine"),
    ],
)
def test_a_damaged_run_is_one_line_with_its_path_and_the_remedy(tmp_path, place, value, said):
    """``value`` at ``place`` of ``run.json``; None: the place is left out, and all of it if there is no place."""
    path = make_run(tmp_path / "dqn") / "run.json"
    about = json.loads(path.read_text(encoding="utf-8"))
    inner = about
    for key in place[:-1]:
        inner = inner[key]
    if not place:
        about = {}
    elif value is None:
        del inner[place[-1]]
    else:
        inner[place[-1]] = value
    write_json(path, about)
    with pytest.raises(ValueError, match=rf"dqn/run.json is damaged \({said}\); copy it again, or delete the run"):
        read_study([tmp_path / "dqn"])


def test_lost_steps_are_told_from_a_run_that_has_made_none(tmp_path):
    scores = {"chrf": everywhere(1.0), "bleu": everywhere(1.0)}
    make_run(tmp_path / "whole" / "seed-1", scores=scores)
    lost = make_run(tmp_path / "lost" / "seed-1", scores=scores)
    (lost / "steps.jsonl").unlink()
    study = read_study([tmp_path])
    assert missing(study, study.rows["whole"]) == [
        "lost (warm-up 10%), seed 1: no steps.jsonl, so it has not begun or its record was lost; it counts in no "
        "table, its curves are drawn as far as they go."
    ]


@pytest.fixture
def larger(tmp_path):
    """A report over a suite with a learned row, made where the next one will be; the suite without that row."""
    make_suite(tmp_path / "suite", {"uniform": {}}, seeds=[1])
    make_run(tmp_path / "suite" / "uniform" / "seed-1", dev_losses={20: everywhere(2.0)})
    values = {step: {"epsilon": 0.1, "scores": everywhere(step)} for step in range(1, 21)}
    scores = {"chrf": everywhere(1.0)}
    make_run(tmp_path / "dqn", teacher="dqn", decisions=values, scores=scores)
    made = make_report([tmp_path / "suite", tmp_path / "dqn"], tmp_path / "report")
    assert "low-resource-chrf" in made.tables
    assert "evolution-dqn" in made.figures
    return tmp_path


def files(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_tables_and_figures_of_an_earlier_larger_report_go_and_files_of_others_stay(larger):
    report = larger / "report"
    for name in ("tables/mine.csv", "figures/mine.png", "notes.md"):
        (report / name).write_text("mine")
    made = make_report([larger / "suite"], report)
    tables = {f"tables/{name}.{ending}" for name in made.tables for ending in ("md", "tex", "csv")}
    figures = {f"figures/{name}.png" for name in made.figures}
    others = {"tables/mine.csv", "figures/mine.png", "notes.md"}
    assert files(report) == {"index.html", "report.md"} | tables | figures | others


def test_nothing_is_removed_beside_a_page_that_is_not_a_reports(larger):
    report = larger / "report"
    page = '<div id="table-low-resource-chrf"></div><figure id="figure-evolution-dqn"></figure>'
    (report / "index.html").write_text(page)
    make_report([larger / "suite"], report)
    assert {"tables/low-resource-chrf.csv", "figures/evolution-dqn.png"} <= files(report)


@pytest.mark.parametrize("option", ["--out", "--records"])
def test_a_file_where_a_folder_should_be_is_one_line(rota, larger, option):
    (larger / "taken").write_text("")
    for place in (larger / "taken", larger / "taken" / "below"):
        code, _, error = rota("report", larger / "suite", "--out", larger / "new", option, place)
        assert (code, error) == (2, f"error: {option} is '{place}', but {larger / 'taken'} is a file; name a folder\n")
    assert not (larger / "new").exists()


def test_records_inside_the_runs_are_refused_before_the_report_is_made(rota, larger):
    code, _, error = rota("report", larger / "suite", "--out", larger / "new", "--records", larger / "suite" / "copy")
    assert code == 2
    assert error.endswith("whose records are to be copied; choose a folder outside\n")
    assert not (larger / "new").exists()


def test_records_of_several_studies_are_not_copied_onto_themselves(larger):
    with pytest.raises(ValueError, match="lies in .*suite, whose records are to be copied"):
        check_target([larger / "suite", larger / "dqn"], larger)


def test_one_of_a_kind_is_said_in_the_singular(rota, tmp_path, monkeypatch):
    from rota.report import assemble, several

    made = assemble.Report(tmp_path / "index.html", "uniform", [], [], ["averages"], ["cost"])
    monkeypatch.setattr(several, "make_report", lambda *_, **__: made)
    _, output, _ = rota("report", tmp_path, "--out", tmp_path)
    assert output.startswith("1 table and 1 figure, compared with uniform: ")
