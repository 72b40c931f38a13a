"""Hugging Face's trainer with a teacher, on a tiny random model: who is trained on, what is saved, what is refused."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "teachers"))

from hf_cases import ALIGN, DQN, TSCL, Killed, collate, language, make, model, records
from sb3_cases import actor, q_network, write_model
from torch.utils.data import IterableDataset
from transformers import EarlyStoppingCallback, Seq2SeqTrainer, Seq2SeqTrainingArguments

from rota.hf import Lessons, LessonSampler, taught
from rota.hf.report import shares_over_time, updates_by_arm, write_report
from rota.hf.sources import SourceGainOfExamples, lenders, with_source_of
from rota.hf.student import Examples, ExampleSets, ModelStudent
from rota.hf.trainer import _check as check_trainer
from rota.hf.trainer import _probe as make_trainers_probe
from rota.measures import Alignment, JointLoss, SourceGain
from rota.settings import ConfigError
from rota.teachers.sb3 import read_policy
from rota.training.turns import Window
from rota.types import SentenceLosses

pytestmark = pytest.mark.filterwarnings("ignore")  # those of transformers, accelerate and torch's loaders


class Spy:
    """A collator that writes down which language each training batch is of."""

    def __init__(self):
        self.batches = []

    def __call__(self, rows):
        self.batches.append({"az" if row["input_ids"][0] < 60 else "tr" for row in rows})
        return collate(rows)


def test_every_update_trains_on_the_arm_that_the_teacher_chose(tmp_path):
    spy = Spy()
    _, trainer = make(tmp_path, "uniform", steps=8, collator=spy, eval_strategy="no")
    trainer.train()
    steps = records(tmp_path)
    assert [entry["step"] for entry in steps] == list(range(1, 9))
    # Two batches an update, and one that was drawn ahead and never trained on.
    drawn = [{entry["arm"]} for entry in steps for _ in range(2)]
    assert spy.batches[:16] == drawn
    assert {entry["arm"] for entry in steps} == {"az", "tr"}


@pytest.mark.parametrize(
    "teacher", ["uniform", ALIGN, TSCL, "odm", DQN], ids=lambda t: t if isinstance(t, str) else t["name"]
)
def test_a_run_that_was_killed_and_resumed_equals_one_that_was_not(tmp_path, teacher):
    _, whole = make(tmp_path / "whole", teacher)
    whole.train()
    _, killed = make(tmp_path / "killed", teacher, callbacks=[Killed(9)])
    with pytest.raises(KeyboardInterrupt):
        killed.train()
    assert all(record._file is None for record in killed.lessons._records.values())
    _, resumed = make(tmp_path / "killed", teacher)
    resumed.train(resume_from_checkpoint=True)
    for name in ("steps", "observations", "rewards", "validations"):
        assert records(tmp_path / "killed", name) == records(tmp_path / "whole", name)
    assert len(records(tmp_path / "whole")) == 16
    weights, again = whole.model.state_dict(), resumed.model.state_dict()
    assert all(torch.equal(weights[name], again[name]) for name in weights)


POLICIES = {"ppo": actor(5, 2), "ppo-mixture": actor(5, 2, spread=0.5), "dqn": q_network(5, 2)}


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_of_stable_baselines3_teaches_a_trainer_and_resumes(tmp_path, policy):
    """By hand: the policy chooses after update 4, 8 and 12, from dev losses, shares so far and the time gone."""
    path = write_model(tmp_path / "model.zip", POLICIES[policy])
    test_a_run_that_was_killed_and_resumed_equals_one_that_was_not(
        tmp_path, {"name": "sb3", "model": str(path), "decide_every": 4}
    )
    steps, told = records(tmp_path / "whole"), records(tmp_path / "whole", "observations")
    assert {entry["why"] for entry in steps[:4]} == {"explore"}, "it has seen nothing yet"
    why = {"ppo": "sampled", "ppo-mixture": "policy", "dqn": "exploit"}
    assert {entry["why"] for entry in steps[4:]} == {why[policy]}
    if policy == "ppo-mixture":
        assert all(sum(entry["examples_by_arm"].values()) == 8 for entry in steps[4:])
        return
    for entry in told[:-1]:
        played = [each["arm"] for each in steps[: entry["played"]]]
        shares = [played.count(arm) / len(played) for arm in ("az", "tr")]
        losses = [entry["dev_loss"][arm] for arm in ("az", "tr")]
        values = read_policy(path).outputs(np.array([*losses, *shares, entry["played"] / 16]))
        place, chosen = int(values.argmax()), steps[entry["step"]]
        if policy == "dqn":
            assert (chosen["arm"], chosen["probability"]) == (("az", "tr")[place], 1.0)
        else:
            chances = np.exp(values) / np.exp(values).sum()
            assert chosen["probability"] == pytest.approx(chances[("az", "tr").index(chosen["arm"])], rel=1e-4)


def test_align_moves_shares(tmp_path):
    lessons, trainer = make(tmp_path, ALIGN, steps=20)
    trainer.train()
    teacher = lessons.sampler.turns.teacher
    assert teacher.shares.tolist() != teacher.prior.tolist()
    assert all("alignment" in entry for entry in records(tmp_path, "observations"))


def test_the_goals_loss_can_choose_the_best_model_and_stop_the_run(tmp_path):
    stopping = EarlyStoppingCallback(early_stopping_patience=1, early_stopping_threshold=100.0)  # no gain is enough
    best = {"metric_for_best_model": "eval_macro_loss", "greater_is_better": False, "load_best_model_at_end": True}
    lessons, trainer = make(tmp_path, "uniform", callbacks=[stopping], save_steps=4, **best)
    lessons.goal = {"az": 3, "tr": 1}
    trainer.train()
    assert trainer.state.global_step == 8  # the second evaluation was not 100 nats better than the first
    logged = trainer.state.log_history
    (macro, *_), (az, *_), (tr, *_) = (
        [entry[f"eval_{name}_loss"] for entry in logged if f"eval_{name}_loss" in entry]
        for name in ("macro", "az", "tr")
    )
    assert macro == pytest.approx(0.75 * az + 0.25 * tr)
    assert records(tmp_path, "validations")[0]["dev_loss"] == {"az": az, "tr": tr}


def test_losses_and_gradients_are_those_of_the_model():
    network, rows = model(), [language(30, 5, 7)[number] for number in range(5)]
    student = ModelStudent(network, collate, lambda: None, causal=False)
    batch = Examples("az", tuple(rows), torch.tensor([len(row["labels"]) for row in rows]).numpy())
    network.train()
    sums, tokens = student.losses([batch])
    assert network.training
    network.eval()
    expected = network(**collate(rows)).loss  # the mean over all label tokens
    assert sums.sum() / tokens.sum() == pytest.approx(float(expected), rel=1e-5)
    expected.backward()
    gradient = student.gradient([batch])
    for ours, parameter in zip(gradient.tensors, student.parameters, strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=1e-4, atol=1e-6)
    student.follow(gradient)
    student.backward_done()
    assert student.projection.dot == pytest.approx(gradient.norm() ** 2, rel=1e-4)
    student.backward_done(scale=2.0)
    assert student.projection.norm == pytest.approx(gradient.norm() / 2, rel=1e-4)


def test_losses_at_averaged_weights_leave_the_model_as_it_was():
    network, rows = model(), [language(30, 3, 7)[number] for number in range(3)]
    student = ModelStudent(network, collate, lambda: None, causal=False)
    batch = Examples("az", tuple(rows), torch.tensor([len(row["labels"]) for row in rows]).numpy())
    student.keep_average(0.5)
    before = student.losses([batch]).per_token
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.5)
    student.updated()  # the first update keeps 2 / 11 of the average
    moved, generator = student.losses([batch]).per_token, torch.get_rng_state()
    averaged = student.losses([batch], weights="average").per_token
    assert len({round(before, 6), round(moved, 6), round(averaged, 6)}) == 3
    assert student.losses([batch]).per_token == moved
    assert torch.equal(torch.get_rng_state(), generator)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"teacher": "exp3-s"}, "a trainer draws its batches earlier than that"),
        ({"teacher": {"name": "align", "direction": "both"}}, "is for rota train alone; use direction: loss"),
        ({"teacher": "multiuat"}, "which only rota train measures"),
        ({"teacher": TSCL, "dataloader_num_workers": 1}, "set dataloader_num_workers=0"),
        ({"teacher": "uniform", "group_by_length": True}, "would undo what the teacher chooses"),
        ({"teacher": "uniform", "auto_find_batch_size": True}, "set it to False"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(tmp_path, settings, why):
    if "group_by_length" in settings:
        settings = {"teacher": "uniform", **length_grouping()}
    settings = dict(settings)
    with pytest.raises(ConfigError, match=why) as caught:
        make(tmp_path, settings.pop("teacher"), **settings)[1].train()
    assert "\n" not in str(caught.value)


def test_the_gate_reads_how_much_the_model_takes_from_the_sources(tmp_path):
    lessons, trainer = make(tmp_path, ALIGN | {"gate_every": 5, "gate_tokens": 60}, steps=17)
    trainer.train()
    read = [entry["source_gain"] for entry in records(tmp_path, "observations") if "source_gain" in entry]
    assert len(read) == 2
    assert all(set(gains) == {"az", "tr"} for gains in read)
    assert {arm: len(looks) for arm, looks in lessons.sampler.turns.teacher.gate.looks.items()} == {"az": 2, "tr": 2}


class Translator:
    """Knows the made-up languages: 0.5 nats for each token of a right translation, 3.5 for any other."""

    def losses(self, batches, *, weights):
        rows = [row for batch in batches for row in batch.rows]
        tokens = np.array([len(row["labels"]) for row in rows])
        return SentenceLosses(tokens * np.array([0.5 if self.right(row) else 3.5 for row in rows]), tokens)

    def right(self, row):
        source = np.array(row["input_ids"][:-1])
        return row["labels"][:-1] == (source[::-1] - 30 + 10).tolist()


def test_the_gain_from_the_source_is_that_of_right_over_wrong_sources():
    """gl has the targets of other sentences, so that no source is right."""
    az = list(language(30, 40, 1))
    gl = [{**row, "labels": other["labels"]} for row, other in zip(az, [*az[7:], *az[:7]], strict=True)]
    sizes = {arm: np.array([len(row["labels"]) for row in rows]) for arm, rows in (("az", az), ("gl", gl))}
    training = ExampleSets({"az": az, "gl": gl}, sizes, {"az": 0.5, "gl": 0.5})
    dev = ExampleSets({"az": az, "gl": gl}, sizes, {"az": 0.5, "gl": 0.5}, training)
    gauge = SourceGainOfExamples(SourceGain(tokens=50), Translator(), dev)
    first = gauge.read(Window((), {}))
    assert first["az"] == pytest.approx((3.0, 0.0))
    assert first["gl"] == pytest.approx((0.0, 0.0))
    assert gauge.state_dict() == {"turn": 1}
    seen = training.rotated("az", 50, 0).tolist()
    assert seen[0] == 0
    assert training.rotated("az", 50, 1)[0] in (seen[-1], seen[-1] + 1)


def test_the_joint_loss_is_that_of_the_goal():
    """An example of az has 2 label tokens and one of tr 5; az has too few for its share of 40 tokens."""
    rows = {arm: [{"labels": [7] * size}] * count for arm, size, count in (("az", 2, 6), ("tr", 5, 50), ("be", 3, 9))}
    sizes = {arm: np.array([len(row["labels"]) for row in some]) for arm, some in rows.items()}
    joint = ExampleSets(rows, sizes, {"az": 0.75, "tr": 0.25}).joint(JointLoss(tokens=40))
    assert joint.target_lengths.tolist() == [2] * 6 + [5] * 2
    sums = np.array([2 * 4.0] * 6 + [5 * 1.0] * 2)  # 4 nats a token of az, 1 of tr
    assert sums @ joint.weights / joint.tokens == pytest.approx(0.75 * 4 + 0.25 * 1)
    alike = ExampleSets(rows, sizes, dict.fromkeys(rows, 1 / 3)).joint(JointLoss(tokens=30))
    assert alike.target_lengths.tolist() == [2] * 5 + [5] * 2 + [3] * 3
    assert alike.weights is None


def test_sources_are_lent_by_the_nearest_length():
    rows = [{"input_ids": [7] * size, "labels": [size]} for size in (2, 3, 9, 10, 10)]
    assert lenders(rows, "az").tolist() == [1, 0, 3, 2, 2]  # the two of length 10 are the same text
    assert lenders(rows[3:], "az") is None
    row = {"input_ids": [1], "attention_mask": [1], "labels": [5]}
    mixed = with_source_of(row, rows[0] | {"attention_mask": [1, 1]})
    assert mixed == {"input_ids": [7, 7], "attention_mask": [1, 1], "labels": [5]}
    with pytest.raises(ValueError, match="examples of az have no columns input_ids and labels"):
        lenders([{"text": "a"}], "az")


def length_grouping():
    """transformers 5 has another name for it."""
    fields = Seq2SeqTrainingArguments.__dataclass_fields__
    return {"group_by_length": True} if "group_by_length" in fields else {"train_sampling_strategy": "group_by_length"}


def pretended(**changes):
    """A trainer as far as the checks before training look at it."""
    args = {"group_by_length": False, "packing": False, "auto_find_batch_size": False, "dataloader_num_workers": 0}
    accelerator = SimpleNamespace(
        **{"split_batches": False, "dispatch_batches": None, **changes.pop("accelerator", {})}
    )
    dataset = changes.pop("train_dataset", range(25))
    return SimpleNamespace(args=SimpleNamespace(**{**args, **changes}), accelerator=accelerator, train_dataset=dataset)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"packing": True}, "packing puts examples of several arms into one; set packing=False"),
        ({"accelerator": {"split_batches": True}}, "split_batches and dispatch_batches cut updates differently"),
        ({"accelerator": {"dispatch_batches": True}}, "split_batches and dispatch_batches cut updates differently"),
        ({"train_dataset": None}, "train_dataset has no length"),
        ({"train_dataset": iter(())}, "train_dataset has no length"),
        ({"train_sampling_strategy": "group_by_length"}, "sorting examples by length"),
    ],
)
def test_settings_that_undo_the_choices_are_refused(changes, why):
    lessons = Lessons({"az": language(30, 5, 1), "tr": language(60, 20, 1)})
    check_trainer(pretended(), lessons)
    with pytest.raises(ConfigError, match=re.escape(why)):
        check_trainer(pretended(**changes), lessons)


def test_zero_3_is_refused_with_alignment_only():
    plugin = SimpleNamespace(zero_stage=3)
    accelerator = SimpleNamespace(state=SimpleNamespace(deepspeed_plugin=plugin))
    lessons = SimpleNamespace(dev=None, sizes={"az": 5})
    trainer = SimpleNamespace(lessons=lessons, is_deepspeed_enabled=True, accelerator=accelerator, eval_dataset=None)
    sampler = SimpleNamespace(turns=SimpleNamespace(watches=[Alignment()]))
    with pytest.raises(ConfigError, match="ZeRO-3 shards the weights"):
        make_trainers_probe(trainer, sampler)
    plugin.zero_stage = 2
    with pytest.raises(ConfigError, match="no dev examples for az"):  # the next check
        make_trainers_probe(trainer, sampler)


def test_language_models_have_no_gate():
    """Nothing in their examples says what the source is: by default they do without, and asked for it is refused."""
    lessons = Lessons({"az": language(30, 5, 1), "tr": language(60, 20, 1)}, {"name": "align", "start": 0})
    lessons.begin(update=4, steps=50, sources=False)
    assert lessons.config.gate is False
    lessons = Lessons({"az": language(30, 5, 1), "tr": language(60, 20, 1)}, {"name": "align", "gate": True})
    with pytest.raises(ConfigError, match="needs to know what in an example is the source"):
        lessons.begin(update=4, steps=50, sources=False)


class Endless(IterableDataset):
    def __iter__(self):
        yield from ()


def test_other_data_sets_than_those_of_the_lessons_are_refused(tmp_path):
    for endless in (Endless(), language(30, 5, 1).to_iterable_dataset()):
        with pytest.raises(ValueError, match="has no length"):
            Lessons({"az": endless})
    lessons, trainer = make(tmp_path, "uniform", eval_strategy="no")
    assert trainer.args.ignore_data_skip  # the sampler itself goes on where it was
    again = Lessons({"az": language(30, 5, 1)})
    with pytest.raises(ConfigError, match="train_dataset has 120 examples and the lessons 5"):
        taught(Seq2SeqTrainer)(model=model(), args=trainer.args, train_dataset=lessons.dataset, lessons=again)


def test_dev_examples_for_every_arm_are_needed_only_by_teachers_that_watch_them(tmp_path):
    _, trainer = make(tmp_path, TSCL, dev={"az": language(30, 8, 5)})
    with pytest.raises(ConfigError, match="no dev examples for tr"):
        trainer.train()
    _, trainer = make(tmp_path, "uniform", dev={"az": language(30, 8, 5)}, steps=2)
    trainer.train()


def test_a_checkpoint_of_another_teacher_or_none_is_refused(tmp_path):
    make(tmp_path, "uniform", steps=6)[1].train()
    with pytest.raises(ConfigError, match="its teacher are"):
        make(tmp_path, "proportional")[1].train(resume_from_checkpoint=True)
    (tmp_path / "checkpoint-6" / "lessons.json").unlink()
    with pytest.raises(ConfigError, match=r"has no lessons\.json"):
        make(tmp_path, "uniform")[1].train(resume_from_checkpoint=True)


def test_a_new_run_in_the_folder_of_another_begins_its_records_anew(tmp_path):
    make(tmp_path, "uniform", steps=6)[1].train()
    make(tmp_path, "uniform", steps=4)[1].train()
    assert len(records(tmp_path)) == 4


def test_the_report_shows_shares_losses_and_epochs(tmp_path):
    lessons, trainer = make(tmp_path / "run", "uniform")
    with pytest.raises(ValueError, match="train first"):
        lessons.report(tmp_path / "report")
    trainer.train()
    page = lessons.report(tmp_path / "report").read_text()
    updates = [entry["arm"] for entry in records(tmp_path / "run")].count("az")
    assert f"az</td><td>{updates / 16:.1%}</td><td>{updates * 8 / 20:.2f}</td>" in page
    assert f"<td>{updates}</td><td>20</td></tr>" in page
    assert page.count("<svg") == 2
    assert "Rewards" not in page


def test_the_report_of_a_teacher_that_learns_shows_its_rewards_and_gains(tmp_path):
    lessons, trainer = make(tmp_path / "run", ALIGN | {"gate_every": 5, "gate_tokens": 60}, steps=24)
    trainer.train()
    page = lessons.report(tmp_path / "report").read_text()
    assert page.count("<svg") == 4
    gains = records(tmp_path / "run", "observations")[-1]["source_gain"]
    assert f"<td>{gains['az'][0]:.3f}</td><td>" in page
    assert "are the lines aligned?" in page


def test_the_summary_names_the_share_that_changed_most(tmp_path):
    """The first half is on az alone, the second on tr alone."""
    more = {"why": "sampled", "loss": 1.0, "tokens": 9}
    entries = [{"step": step, "arm": "az" if step <= 80 else "tr", **more} for step in range(1, 161)]
    (tmp_path / "steps.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    page = write_report(
        tmp_path, tmp_path, LessonSampler({"az": 20, "tr": 20}, update=4, steps=160), "late"
    ).read_text()
    assert "The share of az changed most: from 100% of the first fifth to 0% of the last." in page


def test_an_update_on_a_mixture_counts_for_each_of_its_arms():
    entries = [
        {"step": 1, "arm": "mixture", "examples_by_arm": {"az": 6, "tr": 2}},
        {"step": 2, "arm": "tr"},
    ]
    assert updates_by_arm(entries) == {"az": 0.75, "tr": 1.25}
    assert shares_over_time(entries, ["az", "tr"])[1].tolist() == [[0.75, 0.0], [0.25, 1.0]]


def test_the_report_of_mixed_batches_shows_what_was_in_them(tmp_path):
    lessons, trainer = make(tmp_path / "run", "mixed", steps=4, eval_strategy="no")
    trainer.train()
    drawn = [entry["examples_by_arm"] for entry in records(tmp_path / "run")]
    az = sum(each.get("az", 0) for each in drawn)
    assert sum(sum(each.values()) for each in drawn) == 32
    page = lessons.report(tmp_path / "report").read_text()
    assert f"<td>{az / 32:.1%}</td><td>{az / 20:.2f}</td>" in page


def test_shares_over_time_are_those_of_the_windows():
    steps = [{"step": number + 1, "arm": "az" if number < 75 else "tr"} for number in range(100)]
    ends, shares = shares_over_time(steps, ["az", "tr"])
    assert ends.tolist() == [25, 50, 75, 100]  # parts of 25 updates at least
    assert shares.tolist() == [[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
    assert len(shares_over_time(steps * 50, ["az", "tr"])[0]) == 40


def test_checkpoints_hold_plain_json(tmp_path):
    make(tmp_path, TSCL, steps=6)[1].train()
    state = json.loads((tmp_path / "checkpoint-6" / "lessons.json").read_text())
    assert state["sizes"] == {"az": 20, "tr": 100}
    assert state["state"]["sampler"]["played"] == 6
