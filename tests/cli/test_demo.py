"""The demo, on corpora small enough for a test."""

import shlex

import pytest
from rich.console import Console

from rota import api
from rota.cli import demo
from rota.data.corpora.gettext import CatalogueUnavailable

TINY = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 400, "lato": 60}}, "dev": 6, "test": 6},
        "subwords": {"size": 400},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": "10%"},
    "training": {"steps": 20, "tokens": 100, "checkpoint_every": "50%", "validate_every": "50%", "threads": 1},
}


ALONE = ("--teacher", "uniform", "--beside", "none")


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(demo.CORPORA, "synthetic", TINY)
    return tmp_path


def test_align_and_uniform_end_with_scores_samples_a_picture_a_page_and_what_to_try_next(rota, tiny):
    code, output, error = rota("demo", "--corpus", "synthetic")
    assert code == 0, error
    assert "10 updates each" in output, "half of the 20 that one run has"
    assert "one with the teacher align, one with uniform, to compare" in output
    for words in ("lato (low)", "BLEU", "macro", "source", "reference", "Try next", "--beside proportional"):
        assert words in output
    runs = tiny / "demo" / "synthetic" / "align-beside-uniform"
    assert (runs / "align" / "seed-1" / "shares.png").exists()
    assert (runs / "uniform" / "seed-1" / "evals.jsonl").exists()
    page = (runs / "report" / "index.html").read_text()
    assert "who helps whom" in page.lower()
    first = page[page.index("<main>") :]
    assert (
        first.index("a teacher decides again and again") < first.index("evolution-align") < first.index("Test scores")
    )
    assert "align: share over time" in output


def test_both_runs_have_a_column_of_scores_and_a_line_of_each_translation(rota, tiny):
    code, output, error = rota("demo", "--corpus", "synthetic", "--teacher", "proportional", "--beside", "uniform")
    assert code == 0, error
    names = next(line for line in output.splitlines() if line.split()[:2] == ["language", "proportional"])
    assert names.split() == ["language", *["proportional", "uniform"] * 3], "BLEU, chrF, loss"
    samples = output.split("Some translations:")[1].split("What proportional trained on")[0].split()
    named = [word for word in samples if word in ("lato", "source", "reference", "proportional", "uniform")]
    assert named == ["lato", "source", "reference", "proportional", "uniform"]
    assert "--teacher proportional --beside temperature" in output


def test_one_run_if_no_other_is_wanted(rota, tiny):
    code, output, error = rota("demo", "--corpus", "synthetic", *ALONE)
    assert code == 0, error
    assert "trained 20 steps" in output
    assert output.count("macro") == 1
    assert not list((tiny / "demo" / "synthetic").glob("*beside*"))


def test_a_second_time_everything_is_there_already(rota, tiny):
    both = ("demo", "--corpus", "synthetic", "--teacher", "align", "--beside", "uniform")
    assert rota(*both)[0] == 0
    steps = tiny / "demo" / "synthetic" / "align-beside-uniform" / "align" / "seed-1" / "steps.jsonl"
    before = steps.stat().st_mtime_ns
    code, output, _ = rota(*both)
    assert code == 0
    assert "Try next" in output
    assert steps.stat().st_mtime_ns == before


@pytest.mark.parametrize("teacher", ["mixed", "tscl", "dqn"])
def test_another_teacher_can_be_tried(rota, tiny, teacher):
    assert rota("demo", "--corpus", "synthetic", "--teacher", teacher, "--beside", "none")[0] == 0


def test_without_a_registry_it_says_so_and_uses_generated_languages(rota, tiny, monkeypatch):
    prepare = api.prepare

    def unreachable(config, **keywords):
        if config.data.corpus == "catalogues":
            raise CatalogueUnavailable("no package registry can be reached")
        return prepare(config, **keywords)

    monkeypatch.setattr(api, "prepare", unreachable)
    code, output, error = rota("demo", *ALONE)
    assert code == 0, error
    assert "no package registry can be reached" in output
    assert "their scores say nothing about real ones" in output
    assert (tiny / "demo" / "synthetic" / "uniform" / "seed-1" / "shares.png").exists()


def test_it_can_be_made_shorter_and_says_so_in_what_to_try_next(rota, tiny):
    code, output, error = rota("demo", "--corpus", "synthetic", "--steps", "30", *ALONE)
    assert code == 0, error
    assert "trained 30 steps" in output
    assert "--steps 30 --teacher uniform --beside proportional" in output
    code, _, error = rota("demo", "--corpus", "synthetic", "--steps", "5")
    assert code == 2
    assert "--steps" in error


def test_the_commands_to_try_next_can_be_copied_for_a_folder_with_a_space(rota, tiny):
    code, output, error = rota("demo", "--corpus", "synthetic", "--folder", "a folder", "--steps", "20", *ALONE)
    assert code == 0, error
    tried = [shlex.split(line)[1:] for line in output.splitlines() if line.startswith("  rota ")]
    assert tried[0][:7] == ["demo", "--corpus", "synthetic", "--folder", "a folder", "--steps", "20"]
    assert tried[1][:2] == ["translate", "a folder/synthetic/uniform/seed-1"]
    [scored] = [line for line in output.splitlines() if line.startswith("next: ")]
    assert "rota report 'a folder/synthetic/uniform/seed-1'" in scored


def shown(table):
    console = Console(width=80, force_terminal=False)
    with console.capture() as said:
        console.print(table)
    return said.get().splitlines()


def test_shares_over_time_are_marks_with_the_first_and_the_last_quarter_beside_them():
    shares = {"az": [0.0, 0.1, 0.25, 0.5], "ru": [1.0, 0.9, 0.75, 0.5]}
    even = {"az": [0.5] * 4, "ru": [0.5] * 4}
    head, az, ru = shown(demo.share_table("align", shares, {"uniform": even}))
    assert head.split() == ["language", "align:", "share", "over", "time", "at", "first", "lately", "uniform"]
    assert az.split() == ["az", "▁▂▄", "0.0%", "50.0%", "50.0%"], "and a blank at first, where it had nothing"
    assert ru.split() == ["ru", "██▆▄", "100.0%", "50.0%", "50.0%"]


def test_a_teacher_is_said_to_move_where_its_shares_rise_and_fall_most():
    shares = {"az": [0.1, 0.1, 0.1, 0.4], "be": [0.3] * 4, "ru": [0.6, 0.6, 0.6, 0.3]}
    [said] = demo._where_it_moved("align", shares)
    assert "align moved most towards az (10% to 40% of the tokens) and away from ru (60% to 30% of the tokens)" in said
    assert demo._where_it_moved("uniform", {"az": [0.5, 0.5], "ru": [0.5, 0.5]}) == []


def test_the_board_of_the_demo_has_nothing_below_it_before_a_run_begins():
    assert len(demo.SharesBoard(Console(), "demo").render().renderables) == 1


def test_languages_that_one_text_helped_are_named_together():
    pairs = [("be", "pt"), ("sk", "az"), ("be", "ru"), ("be", "cs")]
    assert demo._grouped("helped", pairs) == ["be helped pt, ru and cs", "sk helped az"]


def test_scores_of_two_schedules_with_long_names_stay_on_one_line_each():
    scores = {"az (low)": [1.0] * 6, "high-resource": [22.2] * 6}
    _, names, az, _ = shown(demo._score_table(scores, ["proportional", "uniform"]))
    assert names.split() == ["language", *["proportional", "uniform"] * 3]
    assert az.split() == ["az", "(low)", *["1.0"] * 4, "1.00", "1.00"]
