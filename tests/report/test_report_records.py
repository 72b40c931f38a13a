"""From step records and observations to what the figures draw; which runs make a study; copies of records."""

import gzip
import json
import lzma

import numpy as np
import pytest
from made_runs import everywhere, make_run, make_suite, write_json, write_lines

from rota.report.figures.drawing import SCHEDULES, language_colours, line_colours, schedule_looks
from rota.report.figures.results import difference_curve, loss_curve
from rota.report.figures.shares import mean_over
from rota.report.figures.teachers import how_to_probe, signal_figure, two_stages
from rota.report.folders import copy_all, copy_records
from rota.report.history import read_history, window_count
from rota.report.numbers.rewards import Reward, rewards, signal_by_chance, signal_by_window, signal_to_noise
from rota.report.sentences import how_made, missing
from rota.report.study import read_study


def test_windows_are_the_papers_where_each_holds_ten_steps():
    assert window_count(150_000) == 150, "1,000 steps each"
    assert window_count(1_500) == 150
    assert window_count(600) == 60
    assert window_count(200) == 30, "at least 30"
    assert window_count(7) == 7


def test_history_counts_tokens_in_windows_of_the_planned_steps():
    lines = [
        {"step": 1, "arm": "az", "why": "warmup", "loss": 1.0, "tokens": 30, "probability": 1.0},
        {
            "step": 2,
            "arm": "tr",
            "why": "explore",
            "loss": 1.0,
            "tokens": 10,
            "epsilon": 0.5,
            "scores": {"az": 1, "tr": 3},
        },
        {
            "step": 3,
            "arm": "mixed",
            "why": "sampled",
            "loss": 1.0,
            "tokens": 40,
            "tokens_by_language": {"az": 10, "tr": 30},
        },
    ]
    history = read_history(lines, ["az", "tr"], steps=4)
    assert history.updates == 3
    assert history.tokens == {"az": 40, "tr": 40}
    assert history.overall == {"az": 0.5, "tr": 0.5}
    assert history.shares["az"][:3].tolist() == [1.0, 0.0, 0.25]
    assert np.isnan(history.shares["az"][3]), "not trained yet"
    assert history.epsilon[:2].tolist() == [1.0, 0.5], "a warm-up is random"
    assert history.scores["tr"][1] == 3


def test_rewards_of_version_0_1_are_derived_from_the_joint_loss_before_or_the_languages_own(tmp_path):
    joint = [
        {"step": step, "arm": arm, "joint_loss": loss}
        for step, arm, loss in ((1, "az", 3.0), (2, "tr", 2.5), (3, "az", 2.75))
    ]
    own = [
        {"step": step, "arm": arm, "dev_loss": {arm: loss}}
        for step, arm, loss in ((1, "az", 3.0), (2, "tr", 9.0), (3, "az", 2.0))
    ]
    study = read_study(
        [make_run(tmp_path / "joint", observations=joint), make_run(tmp_path / "own", observations=own, teacher="tscl")]
    )
    assert rewards(study.rows["joint"].runs[1]) == [Reward(2, "tr", 0.5), Reward(3, "az", -0.25)]
    assert rewards(study.rows["own"].runs[1]) == [Reward(3, "az", 1.0)]


def gain_over_mean(losses):
    """The rewards of a teacher that compares a joint loss with the mean of those before, as the run records them."""
    means = [sum(losses[:told]) / told for told in range(1, len(losses))]
    return [mean - loss for mean, loss in zip(means, losses[1:], strict=True)]


def test_the_rewards_of_a_report_are_those_that_the_teacher_recorded(tmp_path):
    """``gain-over-mean``: gains over the last loss, from which a report once derived them, are other numbers."""
    arms, losses = ["az", "tr", "az", "tr", "az", "tr", "az"], [6.0, 5.0, 4.75, 3.5, 3.5, 1.25, 1.0]
    told = [{"step": 1, "arm": arm, "joint_loss": loss} for arm, loss in zip(arms, losses, strict=True)]
    recorded = gain_over_mean(losses)
    assert recorded[:3] == [1.0, 0.75, 1.75], "6 - 5, 5.5 - 4.75, 5.25 - 3.5"
    lines = [{"step": 1, "rewards": {arm: reward}} for arm, reward in zip(arms[1:], recorded, strict=True)]
    run = make_run(tmp_path / "a", teacher="dqn", observations=told)
    derived = read_study([run]).any_run
    assert [reward for _, _, reward in rewards(derived)] == [1.0, 0.25, 1.25, 0.0, 2.25, 0.25]
    write_lines(run / "rewards.jsonl", lines)
    found = read_study([run]).any_run
    assert rewards(found) == [Reward(1, arm, reward) for arm, reward in zip(arms[1:], recorded, strict=True)]
    by_arm = {"tr": recorded[0::2], "az": recorded[1::2]}
    assert signal_by_window(found)[0] == signal_to_noise(by_arm) != signal_by_window(derived)[0]


def test_a_tell_may_reward_several_arms_and_one_of_a_later_version_may_reward_none(tmp_path):
    run = make_run(tmp_path / "a", observations=[{"step": step, "arm": "az", "joint_loss": step} for step in (1, 2)])
    write_lines(run / "rewards.jsonl", [{"step": 2, "rewards": {"az": 0.5, "tr": -0.25}}])
    assert rewards(read_study([run]).any_run) == [Reward(2, "az", 0.5), Reward(2, "tr", -0.25)]
    (run / "rewards.jsonl").unlink()
    about = json.loads((run / "run.json").read_text())
    write_json(run / "run.json", about | {"versions": {"rota-nmt": "0.2.0"}})
    assert rewards(read_study([run]).any_run) == [], "nothing is derived where rewards would have been recorded"


@pytest.mark.parametrize(
    ("recorded", "said", "unsaid"),
    [
        ((), "How much the gains told the teacher", "derived"),
        (("tscl", "dqn"), "How much the rewards told the teacher", "derived"),
        (("dqn",), "The rewards of tscl (warm-up 10%) were not recorded; they are derived afterwards", "gains"),
    ],
)
def test_the_figure_of_rewards_says_where_they_are_derived(tmp_path, recorded, said, unsaid):
    arms, losses = ["az", "tr"] * 4, [9.0, 8.0, 7.5, 6.0, 6.5, 4.0, 3.0, 1.0]
    told = [{"step": 1, "arm": arm, "joint_loss": loss} for arm, loss in zip(arms, losses, strict=True)]
    for row in ("tscl", "dqn"):
        run = make_run(tmp_path / row / "seed-1", teacher=row, observations=told)
        if row in recorded:
            write_lines(
                run / "rewards.jsonl", [{"step": 1, "rewards": {entry["arm"]: entry["joint_loss"]}} for entry in told]
            )
    study = read_study([tmp_path])
    caption = signal_figure(study.main, schedule_looks(list(study.rows))).caption
    assert said in caption
    assert unsaid not in caption


def test_signal_to_noise_is_the_analysis_of_variance():
    """Means 1 and 5; within: four squares of 1 over 4 - 2, so 2; between: 16; (16 - 2) / 2 = 7; the root of 7 / 2."""
    assert signal_to_noise({"az": [0, 2], "tr": [4, 6]}) == pytest.approx(3.5**0.5)
    assert signal_to_noise({"az": [0, 2], "tr": [0, 2]}) == 0.0, "no more than chance"
    assert signal_to_noise({"az": [0, 2]}) is None, "one arm"
    assert signal_to_noise({"az": [1], "tr": [2]}) is None, "no noise can be seen"
    assert signal_to_noise({"az": [1, 1], "tr": [2, 2]}) is None


def test_signal_is_taken_in_tenths_of_the_run(tmp_path):
    losses = [10, 9, 7, 7, 5, 4, 0]  # gains 1, 2 (az), 0, 2 (tr), 1 (az), 4 (tr)
    arms = ["az", "az", "az", "tr", "tr", "az", "tr"]
    told = [{"step": 1, "arm": arm, "joint_loss": loss} for arm, loss in zip(arms, losses, strict=True)]
    run = read_study([make_run(tmp_path / "a", observations=told)]).any_run
    signal = signal_by_window(run)
    by_hand = signal_to_noise({"az": [1, 2, 1], "tr": [0, 2, 4]})
    assert signal[0] == by_hand == 0.0
    assert np.isnan(signal[1:]).all()


def test_what_chance_would_give_forgets_which_arm_gained(tmp_path):
    """az always gains 1 and tr 5, give or take 0.1: a ratio of about 28; dealt anew, they tell next to nothing."""
    rng = np.random.default_rng(1)
    arms = ["az", "tr"] * 20
    gained = [{"az": 1.0, "tr": 5.0}[arm] + rng.normal(0, 0.1) for arm in arms]
    losses = 200 - np.cumsum([0.0, *gained])
    told = [{"step": 1, "arm": arm, "joint_loss": loss} for arm, loss in zip(["az", *arms], losses, strict=True)]
    run = read_study([make_run(tmp_path / "a", observations=told)]).any_run
    assert signal_by_window(run)[0] == pytest.approx(28, abs=6)
    assert 0.0 < signal_by_chance(run)[0] < 0.3
    assert np.isnan(signal_by_chance(run)[1:]).all()


def test_means_over_runs_leave_out_those_that_have_not_come_so_far():
    assert mean_over([np.array([1.0, 2.0]), np.array([3.0, np.nan])]).tolist() == [2.0, 2.0]
    assert np.isnan(mean_over([np.array([np.nan])])).all()


def test_curves_are_means_with_a_spread_and_differences_are_paired_by_seed(tmp_path):
    for row, losses in (("a", (2.0, 4.0)), ("b", (2.5, 4.5))):
        for seed, loss in enumerate(losses, start=1):
            make_run(tmp_path / row / f"seed-{seed}", seed=seed, dev_losses={10: everywhere(loss)})
    rows = read_study([tmp_path]).rows
    steps, mean, spread = loss_curve(rows["b"], "macro")
    assert (steps.tolist(), mean.tolist(), spread.tolist()) == ([10], [3.5], [pytest.approx(2**0.5)])
    _, mean, spread = difference_curve(rows["b"], rows["a"], "macro")
    assert (mean.tolist(), spread.tolist()) == ([0.5], [0.0])


def test_the_probes_nearest_to_the_papers_stages_are_shown(tmp_path):
    run = make_run(tmp_path / "a", teacher="dqn", steps=150)
    (run / "policy").mkdir()
    for step in (15, 30, 60, 150):
        write_json(run / "policy" / f"{step}.json", {"step": step, "languages": ["az"], "matrix": [[1]], "factor": 5})
    found = read_study([run]).any_run
    assert [probe["step"] for probe in two_stages(found)] == [30, 60], "28 and 56 of 150"
    assert how_to_probe(found) == [f"rota policy {run} --step {step}" for step in (30, 60)]


def test_relatives_have_related_colours_and_every_schedule_its_own_look():
    colours = language_colours(["az", "tr", "xx", "yy"])
    assert len(set(colours.values())) == 4
    assert line_colours(["az", "tr"])["az"] == line_colours(["az", "tr"])["tr"] == colours["az"]
    names = [str(number) for number in range(4 * len(SCHEDULES))]
    looks = schedule_looks(names)
    assert len({(look.colour, look.dash) for look in looks.values()}) == len(names)


def test_a_study_is_found_in_suites_rows_runs_and_folders_of_runs(tmp_path):
    make_suite(tmp_path / "suite", {"b": {"label": "Bee"}, "a": {}}, seeds=[1])
    run = make_run(tmp_path / "suite" / "b" / "seed-1")
    make_run(tmp_path / "suite" / "a" / "seed-1", teacher="tscl")
    assert list(read_study([tmp_path / "suite"]).rows) == ["b", "a"], "in the order of the suite"
    for path in (run, run.parent):
        study = read_study([path])
        assert [row.label for row in study.rows.values()] == ["Bee"]
        assert missing(study, study.rows["b"]) == ["No chrF and BLEU of any run; rota evaluate adds it."]


def test_plain_runs_that_differ_in_the_seed_alone_are_one_row(tmp_path):
    make_run(tmp_path / "uniform-1", seed=1)
    make_run(tmp_path / "uniform-2", seed=2)
    make_run(tmp_path / "uniform-3", seed=3, teacher="tscl")
    rows = read_study([tmp_path / name for name in ("uniform-1", "uniform-2", "uniform-3")]).rows
    assert {name: sorted(row.runs) for name, row in rows.items()} == {"uniform": [1, 2], "uniform-3": [3]}
    assert rows["uniform"].title == "uniform (warm-up 10%)"


@pytest.mark.parametrize(
    ("section", "change", "rows"),
    [("student", {"device": "cuda"}, 1), ("student", {"piece_tokens": None}, 1), ("student", {"width": 999}, 2)],
)
def test_where_a_run_was_trained_and_settings_that_are_not_set_do_not_make_it_another_row(
    tmp_path, section, change, rows
):
    folders = [make_run(tmp_path / f"uniform-{seed}", seed=seed) for seed in (1, 2)]
    about = json.loads((folders[1] / "run.json").read_text())
    about["config"][section] |= change
    (folders[1] / "run.json").write_text(json.dumps(about))
    assert len(read_study(folders).rows) == rows


def test_mistakes_are_one_line_with_the_remedy(tmp_path):
    run = make_run(tmp_path / "one" / "a")
    make_run(tmp_path / "two" / "a")
    make_run(tmp_path / "three" / "b", data="another corpus")
    with pytest.raises(ValueError, match="no folder '.*moon'; give run folders or the folder of a suite"):
        read_study([tmp_path / "moon"])
    with pytest.raises(ValueError, match="no runs in .*; give run folders"):
        read_study([run / "policy" if (run / "policy").exists() else _empty(tmp_path)])
    with pytest.raises(ValueError, match="are both 'a' with seed 1; rename one folder, or leave it out"):
        read_study([tmp_path / "one", tmp_path / "two"])
    with pytest.raises(ValueError, match="was trained on other data than .*; make a report for each"):
        read_study([tmp_path / "one", tmp_path / "three"])
    (run / "run.json").write_text("{")
    with pytest.raises(ValueError, match="run.json is damaged .*; copy it again, or delete the run"):
        read_study([run])


def _empty(tmp_path):
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_the_same_run_twice_is_one_run(tmp_path):
    run = make_run(tmp_path / "a")
    assert len(read_study([run, tmp_path]).runs) == 1


def test_copied_records_have_no_models_and_make_the_same_study(tmp_path):
    make_suite(tmp_path / "suite", {"dqn": {}}, seeds=[1])
    run = make_run(
        tmp_path / "suite" / "dqn" / "seed-1", teacher="dqn", observations=[{"step": 1, "arm": "az", "joint_loss": 1.0}]
    )
    write_lines(run / "rewards.jsonl", [{"step": 1, "rewards": {"az": 0.5}}])
    write_lines(run / "alarms.jsonl", [{"step": 1, "kind": "one-arm", "arm": "az", "text": "too much az"}])
    for extra in (
        "checkpoints/20/student.network.safetensors",
        "translations/20.txt",
        "policy/20.json",
        "policy/20.png",
        "log.txt",
    ):
        (run / extra).parent.mkdir(parents=True, exist_ok=True)
        (run / extra).write_text(json.dumps({"step": 20}))
    written = copy_records(tmp_path / "suite", tmp_path / "copy")
    names = {str(path.relative_to(tmp_path / "copy")) for path in (tmp_path / "copy").rglob("*") if path.is_file()}
    records = {
        "run.json",
        "validations.jsonl.xz",
        "timings.jsonl.xz",
        "alarms.jsonl",
        "evals.jsonl.xz",
        "steps.jsonl.xz",
        "observations.jsonl.xz",
        "rewards.jsonl.xz",
        "policy/20.json",
    }
    assert names == {"suite.json"} | {f"dqn/seed-1/{name}" for name in records}
    assert written == sum(path.stat().st_size for path in (tmp_path / "copy").rglob("*") if path.is_file())
    ours, theirs = (read_study([tmp_path / name]).any_run for name in ("suite", "copy"))
    assert ours.history.tokens == theirs.history.tokens
    assert rewards(ours) == rewards(theirs)


def test_copies_of_the_same_records_are_the_same_bytes_also_a_copy_of_a_copy(tmp_path):
    make_run(tmp_path / "runs" / "a")
    for source, name in (("runs", "one"), ("runs", "two"), ("one", "three")):
        copy_records(tmp_path / source, tmp_path / name)
    first, *others = ((tmp_path / name / "a" / "steps.jsonl.xz").read_bytes() for name in ("one", "two", "three"))
    assert all(other == first for other in others)


def test_a_copy_of_records_that_an_earlier_version_gzipped_takes_their_place(tmp_path):
    make_run(tmp_path / "runs" / "a")
    copy_records(tmp_path / "runs", tmp_path / "now")
    copy_records(tmp_path / "runs", tmp_path / "before")
    for path in (tmp_path / "before" / "a").glob("*.jsonl.xz"):
        plain = lzma.decompress(path.read_bytes())
        path.unlink()
        if path.name.startswith(("timings", "evals")):
            path.with_suffix("").write_bytes(plain)
        else:
            path.with_suffix(".gz").write_bytes(gzip.compress(plain))
    before, now = (read_study([tmp_path / name]).any_run for name in ("before", "now"))
    assert before.history.tokens == now.history.tokens
    names = {path.name for path in (tmp_path / "now" / "a").iterdir()}
    copy_records(tmp_path / "before", tmp_path / "again")
    for copy in (tmp_path / "again", tmp_path / "before"):  # from a copy of them, and where they are
        copy_records(tmp_path / "runs" if copy.name == "before" else tmp_path / "before", copy)
        assert {path.name for path in (copy / "a").iterdir()} == names
        assert all((copy / "a" / name).read_bytes() == (tmp_path / "now" / "a" / name).read_bytes() for name in names)


def test_records_are_not_copied_over_those_of_a_run_that_has_models(tmp_path):
    for name in ("one", "two"):
        make_run(tmp_path / name / "a")
        write_json(tmp_path / name / "suite.json", {"name": name, "rows": [], "seeds": []})
    checkpoint = tmp_path / "two" / "a" / "checkpoints" / "20"
    checkpoint.mkdir(parents=True)
    (checkpoint / "checkpoint.json").write_text("{}")
    before = (tmp_path / "two" / "a" / "steps.jsonl").read_bytes()
    with pytest.raises(ValueError, match="two/a is a run with models, not a copy of one; choose another folder"):
        copy_records(tmp_path / "one", tmp_path / "two")
    assert (tmp_path / "two" / "a" / "steps.jsonl").read_bytes() == before
    assert json.loads((tmp_path / "two" / "suite.json").read_text())["name"] == "two", "nothing was copied before"


def test_a_record_that_the_run_no_longer_has_goes_from_its_copy_too(tmp_path):
    make_run(tmp_path / "runs" / "a")
    copy_records(tmp_path / "runs", tmp_path / "copy")
    (tmp_path / "runs" / "a" / "timings.jsonl").unlink()
    (tmp_path / "copy" / "a" / "timings.jsonl").write_text("older\n")
    copy_records(tmp_path / "runs", tmp_path / "copy")
    assert not list((tmp_path / "copy" / "a").glob("timings*"))


def test_copying_refuses_to_write_into_what_it_reads(tmp_path):
    make_run(tmp_path / "runs" / "a")
    with pytest.raises(ValueError, match="choose a folder outside"):
        copy_records(tmp_path / "runs", tmp_path / "runs" / "copy")
    make_run(tmp_path / "other" / "runs" / "b")
    with pytest.raises(ValueError, match="two of the folders are named 'runs'; copy their records one at a time"):
        copy_all([tmp_path / "runs", tmp_path / "other" / "runs"], tmp_path / "copy")


def test_a_teacher_learns_if_its_choices_came_with_values(tmp_path):
    make_run(tmp_path / "static")
    make_run(tmp_path / "learned", teacher="tscl", decisions={5: {"scores": {"az": 0.5}, "epsilon": 0.1}})
    rows = read_study([tmp_path]).rows
    assert not rows["static"].learned
    assert rows["learned"].learned


def test_copied_records_do_not_tell_where_the_data_lay(tmp_path):
    run = make_run(tmp_path / "runs" / "uniform")
    about = json.loads((run / "run.json").read_text())
    write_json(run / "run.json", about | {"data": about["data"] | {"folder": "/home/ada/prepared/mine"}})
    copy_records(tmp_path / "runs", tmp_path / "copy")
    copied = json.loads((tmp_path / "copy" / "uniform" / "run.json").read_text())
    assert copied.pop("check"), "it has a check value of its own"
    assert copied == about | {"data": about["data"] | {"folder": "mine"}}


def test_the_report_says_which_model_was_scored(tmp_path):
    for name, chosen in (("plain", {}), ("mean", {"combine": "average", "steps": [14, 16, 18, 20]})):
        make_run(tmp_path / name / "seed-1", scores={"chrf": everywhere(1.0)}, chosen=chosen)
    said = how_made(read_study([tmp_path]))
    assert [line for line in said if line.startswith("Scored")] == [
        "Scored: average of the last 4 checkpoints; beam 5, length penalty 1.",
        "Scored: the model of the last step; beam 5, length penalty 1.",
    ]


def test_the_report_names_another_engine(tmp_path):
    chosen = {"search": {"beam": 5, "length_penalty": 1.0, "engine": "ctranslate2"}}
    make_run(tmp_path / "plain" / "seed-1", scores={"chrf": everywhere(1.0)}, chosen=chosen)
    expected = "Scored: the model of the last step; beam 5, length penalty 1, engine ctranslate2."
    assert expected in how_made(read_study([tmp_path]))
