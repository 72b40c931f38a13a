"""A report that is up to date is not made again; one of which anything has changed is."""

import json
import os

import pytest
from made_runs import everywhere, make_run, make_suite
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.layout_engine import ConstrainedLayoutEngine

from rota.report import page, several
from rota.report.made import MADE

LOSSES = {10: everywhere(3.0), 20: everywhere(2.0)}


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda layout, figure: None)
    monkeypatch.setattr(FigureCanvasSVG, "print_svg", lambda canvas, file, **_: file.write("<svg></svg>"))
    monkeypatch.setattr(FigureCanvasAgg, "print_png", lambda canvas, file, **_: file.write(b""))


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A suite with a report of it, in the working directory."""
    monkeypatch.chdir(tmp_path)
    suite = tmp_path / "suite"
    make_suite(suite, {"uniform": {}, "tscl": {}}, seeds=[1, 2])
    for row in ("uniform", "tscl"):
        for seed in (1, 2):
            make_run(suite / row / f"seed-{seed}", seed=seed, teacher=row, dev_losses=LOSSES)
    return tmp_path


@pytest.fixture
def made(monkeypatch):
    """The folders of the reports that were made, not found up to date."""
    folders = []
    make = several.report_on

    def counted(paths, out, **options):
        folders.append(str(out))
        return make(paths, out, **options)

    monkeypatch.setattr(several, "report_on", counted)
    return folders


def report(rota, *options):
    code, output, error = rota("report", "suite", *options)
    assert code == 0, error
    return output


def files(folder):
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}


def test_nothing_changed_so_the_same_is_said_and_no_file_is_touched(rota, study, made):
    said = report(rota)
    before = files(study / "report")
    assert "report/index.html" in said
    assert report(rota) == said
    assert files(study / "report") == before
    assert made == ["report"]


def test_again_makes_the_same_report_anew(rota, study, made):
    said = report(rota)
    before = {path: content for path, (content, _) in files(study / "report").items() if path.name != MADE}
    assert report(rota, "--again") == said
    after = {path: content for path, (content, _) in files(study / "report").items() if path.name != MADE}
    assert after == before
    assert made == ["report", "report"]


def one_more_step(folder):
    path = folder / "suite/tscl/seed-2/steps.jsonl"
    path.write_text(path.read_text() + json.dumps({"step": 21, "arm": "az", "why": "sampled", "loss": 1, "tokens": 1}))


def another_digit_at_the_same_time(folder):
    path = folder / "suite/uniform/seed-1/validations.jsonl"
    times = path.stat()
    path.write_text(path.read_text().replace("2.0", "2.1"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert path.stat().st_mtime_ns == times.st_mtime_ns


def another_seed(folder):
    make_run(folder / "suite/uniform/seed-3", seed=3, dev_losses=LOSSES)


def a_seed_fewer(folder):
    (folder / "suite/tscl/seed-2/run.json").unlink()


def another_label(folder):
    path = folder / "suite/suite.json"
    path.write_text(path.read_text().replace('"label": "tscl"', '"label": "TSCL"'))


def a_first_probe(folder):
    probe = {"step": 20, "factor": 5.0, "languages": ["az", "be"], "matrix": [[0.5, 0.5], [0.5, 0.5]]}
    (folder / "suite/tscl/seed-1/policy").mkdir()
    (folder / "suite/tscl/seed-1/policy/20.json").write_text(json.dumps(probe))


def a_lost_figure(folder):
    next((folder / "report/figures").iterdir()).unlink()


def an_edited_page(folder):
    path = folder / "report/index.html"
    path.write_text(path.read_text() + "<!-- mine -->")


def a_damaged_memory(folder):
    path = folder / "report" / MADE
    path.write_text(path.read_text().replace('"origin": "', '"origin": "0'))


@pytest.mark.parametrize(
    "change",
    [
        one_more_step,
        another_digit_at_the_same_time,
        another_seed,
        a_seed_fewer,
        another_label,
        a_first_probe,
        a_lost_figure,
        an_edited_page,
        a_damaged_memory,
    ],
)
def test_a_change_of_what_it_is_made_from_or_of_its_files_makes_it_again(rota, study, made, change):
    report(rota)
    change(study)
    report(rota)
    assert made == ["report", "report"]
    report(rota)
    assert made == ["report", "report"]


@pytest.mark.parametrize("options", [("--title", "T"), ("--baseline", "tscl")])
def test_other_options_make_another_report(rota, study, made, options):
    report(rota)
    report(rota, *options)
    assert made == ["report", "report"]


def test_another_program_makes_it_again(rota, study, made, monkeypatch):
    report(rota)
    monkeypatch.setattr("rota.report.made.version", lambda name: "another")
    report(rota)
    assert made == ["report", "report"]


def test_a_report_that_ended_half_way_does_not_count(rota, study, made, monkeypatch):
    report(rota)
    one_more_step(study)
    write = page.write_atomically

    def killed(path, text):
        if path.name == "index.html":
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(page, "write_atomically", killed)
        assert rota("report", "suite")[0] == 130
    assert not (study / "report" / MADE).exists()
    report(rota)
    assert len(made) == 3


def test_records_are_read_while_runs_go_on_so_what_came_later_makes_it_again(rota, study, made, monkeypatch):
    write = several.make_report

    def meanwhile(*given, **options):
        found = write(*given, **options)
        one_more_step(study)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(several, "make_report", meanwhile)
        report(rota)
    report(rota)
    assert len(made) == 2


def test_records_are_copied_also_if_the_report_is_up_to_date(rota, study, made):
    report(rota)
    assert "records: " in report(rota, "--records", "copied")
    assert (study / "copied/tscl/seed-2/run.json").is_file()
    assert made == ["report"]


def test_folders_that_are_not_runs_are_refused_as_before(rota, study):
    (study / "empty").mkdir()
    for folder, said in (("empty", "no runs in empty"), ("nothing", "no folder 'nothing'")):
        code, _, error = rota("report", folder)
        assert (code, error.startswith(f"error: {said}")) == (2, True), error
    assert not (study / "report" / MADE).exists()


def another_loss_on_one_corpus(folder):
    path = folder / "suite/b/uniform/seed-1/validations.jsonl"
    path.write_text(path.read_text().replace("2.0", "2.25"))


def a_lost_page_of_one_corpus(folder):
    (folder / "report/b/index.html").unlink()


@pytest.mark.parametrize("change", [another_loss_on_one_corpus, a_lost_page_of_one_corpus])
def test_a_report_on_several_corpora_is_made_again_if_anything_of_one_has_changed(
    rota, tmp_path, monkeypatch, made, change
):
    monkeypatch.chdir(tmp_path)
    for corpus in ("a", "b"):
        make_suite(tmp_path / "suite" / corpus, {"uniform": {}, "tscl": {}}, seeds=[1])
        for row in ("uniform", "tscl"):
            make_run(tmp_path / "suite" / corpus / row / "seed-1", teacher=row, dev_losses=LOSSES, data=corpus)
    make_suite(tmp_path / "suite", {"uniform": {}, "tscl": {}}, seeds=[1])
    path = tmp_path / "suite" / "suite.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "corpora": ["a", "b"]}))
    said = report(rota)
    assert report(rota) == said
    assert made == ["report"]
    change(tmp_path)
    report(rota)
    assert made == ["report", "report"]
    assert (tmp_path / "report/b/index.html").is_file()
