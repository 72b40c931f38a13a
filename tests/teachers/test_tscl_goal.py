"""TSCL in a run with a goal: rewarded by the change of the goal's dev loss, worked out here a second time."""

import numpy as np
import pytest

from rota import api
from rota.config import as_begun, check_before_preparing, parse_config
from rota.hf.sampler import LessonSampler
from rota.measures import DevLoss, JointLoss
from rota.runs import Run
from rota.settings import ConfigError
from rota.teachers import Classroom, build_teacher
from rota.teachers.bandits.tscl import TSCLConfig
from rota.team import Team
from rota.testing import observation_of

ARMS = ("az", "az-web", "tr", "ru")
CLASSROOM = Classroom(
    {"az": 5, "az-web": 60, "tr": 90, "ru": 80},
    low_resource=("az", "az-web"),
    steps=1000,
    goal={"az": 0.75, "tr": 0.25},
    language_of={"az": "az", "az-web": "az", "tr": "tr", "ru": "ru"},
)
JOINT = {"warmup": None, "reward_batch": "joint", "alpha": 0.25, "epsilon": 0.2, "first_reward": "untried"}

# How far an update on an arm lowers the dev loss of az and of tr, in nats; az-web makes az worse.
EFFECTS = {"az": (0.04, 0.0), "az-web": (-0.02, 0.01), "tr": (0.01, 0.03), "ru": (0.0, 0.01)}


class Student:
    """Two dev losses that change by fixed amounts; the goal's loss is 3/4 of one and 1/4 of the other."""

    def __init__(self):
        self.az, self.tr = 6.0, 5.0

    def play(self, arm, updates):
        az, tr = EFFECTS[arm]
        self.az, self.tr = self.az - az * updates, self.tr - tr * updates
        return 0.75 * self.az + 0.25 * self.tr


def played(teacher, steps, every):
    """Decisions and rewards of a teacher that trains such a student."""
    student, decisions, rewards = Student(), [], []
    for step in range(0, steps, every):
        decision = teacher.ask(step)
        loss = student.play(decision.arm, every)
        rewards.append(teacher.tell(observation_of(teacher.watches, step + every, decision, {JointLoss: loss}, every)))
        decisions.append(decision)
    return decisions, rewards


@pytest.mark.parametrize("every", [1, 5])
def test_eighty_decisions_follow_from_the_change_of_the_goals_loss(every):
    teacher = build_teacher(TSCLConfig(decide_every=every, **JOINT), CLASSROOM, np.random.default_rng(7))
    decisions, rewards = played(teacher, 80 * every, every)

    rng = np.random.default_rng(7).spawn(3)[0]
    q, told, gained = dict.fromkeys(ARMS, 0.0), False, {}
    for number in range(80):
        if number < len(ARMS):
            arm, why = ARMS[number], "first visit"
        elif rng.random() < 0.2:
            arm, why = ARMS[int(rng.integers(4))], "explore"
        else:  # what has no reward comes first, then the largest Q, not the largest |Q|
            arm = next((each for each in ARMS if each not in gained), max(q, key=lambda each: q[each]))
            why = "exploit"
        assert (decisions[number].arm, decisions[number].why) == (arm, why)
        az, tr = EFFECTS[arm]
        gain = every * (0.75 * az + 0.25 * tr)
        assert (rewards[number] == {arm: pytest.approx(gain)}) if told else (rewards[number] == {})
        if told:
            q[arm] = 0.25 * gain + 0.75 * q[arm] if arm in gained else gain
            gained[arm] = gain
        told = True  # of the first choice the loss before is not known
    # az 0.03, tr 0.015, ru 0.0025, az-web -0.0125 an update
    assert teacher.teacher.values() == pytest.approx([each * every for each in (0.03, -0.0125, 0.015, 0.0025)])
    assert sum(decision.arm == "az" for decision in decisions) > 50


def test_ranked_by_absolute_values_it_would_like_what_does_most_harm():
    for absolute, best in ((None, "tr"), (True, "az-web")):
        written = {} if absolute is None else {"absolute": absolute}
        config = TSCLConfig(warmup=None, reward_batch="joint", first_visits="text", epsilon=0.0, alpha=1.0, **written)
        teacher = config.build(CLASSROOM, np.random.default_rng(1)).teacher
        for step, (arm, loss) in enumerate([("ru", 5.0), ("tr", 4.9), ("az-web", 5.2)], start=1):
            teacher.tell(observation_of(teacher.watches, step, {arm: 1}, {JointLoss: loss}))
        assert teacher.ask(3).arm == best
        assert teacher.ask(3).scores == pytest.approx({"az": 0.0, "az-web": -0.3, "tr": 0.1, "ru": 0.0})


def test_what_a_warmup_gained_that_it_was_not_told_of_is_not_taken_for_that_of_a_choice():
    config = TSCLConfig(**JOINT | {"warmup": {"until": 40, "inform": "none"}}, decide_every=2)
    teacher = build_teacher(config, CLASSROOM, np.random.default_rng(3))
    decisions, rewards = played(teacher, 60, 2)
    assert [decision.why for decision in decisions[:21]] == ["first visit"] * 4 + ["warmup"] * 16 + [decisions[20].why]
    assert rewards[4:20] == [None] * 16
    assert rewards[20] == {}
    az, tr = EFFECTS[decisions[21].arm]
    assert rewards[21] == {decisions[21].arm: pytest.approx(2 * (0.75 * az + 0.25 * tr))}


def test_a_sampler_that_is_told_one_update_late_is_rewarded_all_the_same():
    losses = iter(np.arange(9.0, 0.0, -0.5))
    made = LessonSampler(
        {"az": 40, "tr": 90},
        {"name": "tscl", "warmup": None, "decide_every": 3},
        update=4,
        steps=30,
        goal="az",
        measure=lambda step, measures, window: {measure: next(losses) for measure in measures},
    )
    assert made.turns.watches == (JointLoss(tokens=made.config.reward_tokens),)
    drawn = iter(made)
    for _ in range(8 * 4):
        next(drawn)
    for _ in range(20):  # eight updates are drawn ahead at first, then one for each that is played
        made.played()
        for _ in range(4):
            next(drawn)
    rewards = [told[2] for told in made.told]
    assert len(rewards) > 3
    assert rewards[0] == {}
    assert all(list(each.values()) == [pytest.approx(0.5)] for each in rewards[1:])


VALUES = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 200, "lato": 60}, "ke": {"kela": 100}}, "dev": 40, "test": 4},
        "subwords": {"size": 300},
        "sources": {"lala-web": {"language": "lala", "take": 0.5}},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2},
    "training": {"steps": 20, "tokens": 60, "checkpoint_every": 10, "validate_every": 10, "threads": 1},
}


def config(tmp_path, teacher="tscl", goal=None, **more):
    data = {**VALUES["data"], "folder": str(tmp_path / "data")}
    wanted = {} if goal is None else {"goal": goal}
    return parse_config({**VALUES, **wanted, "data": data, "teacher": teacher, **more})


GOAL = {"lato": 3, "kela": 1}


def test_a_run_with_a_goal_is_rewarded_by_it_and_resumes_bit_for_bit(tmp_path):
    whole, cut = Run(tmp_path / "whole"), Run(tmp_path / "cut")
    made = config(tmp_path, {"name": "tscl", "warmup": 6, "decide_every": 2}, GOAL)
    api.train(made, whole.folder)
    assert whole.setting("config.teacher")["reward_batch"] == "joint"
    assert whole.setting("config.teacher")["absolute"] is False
    joint = [entry["joint_loss"] for entry in whole.read("observations")]
    rewards = {entry["step"]: list(entry["rewards"].values()) for entry in whole.read("rewards")}
    assert len(joint) == 10
    gains = {2 * number + 2: [pytest.approx(joint[number - 1] - joint[number])] for number in range(1, 10)}
    assert rewards == gains
    for until in (5, 12):  # in the warm-up, and between an observation and the next
        api.train(made, cut.folder, until=until)
    api.train(made, cut.folder)
    for name in ("steps", "observations", "rewards", "validations"):
        assert cut.record_path(name).read_bytes() == whole.record_path(name).read_bytes()


def test_without_a_goal_every_arm_is_rewarded_by_its_own_loss(tmp_path):
    for goal in (None, "all"):
        teacher = config(tmp_path, goal=goal).teacher
        assert (teacher.reward_batch, teacher.absolute) == ("current-language", True)
        assert isinstance(teacher.reward_measure, DevLoss)


@pytest.mark.parametrize("written", [{}, {"variant": "paper"}, {"algorithm": "sampling"}, {"epsilon": 0.3}])
def test_with_a_goal_it_is_rewarded_by_the_joint_loss_of_as_many_tokens(tmp_path, written):
    plain, goal = (config(tmp_path, {"name": "tscl", **written}, goal).teacher for goal in (None, GOAL))
    assert goal.reward_measure == JointLoss(tokens=plain.reward_tokens)
    changed = {"reward_batch", "absolute"}
    assert goal.model_dump(exclude=changed) == plain.model_dump(exclude=changed)
    assert not goal.absolute


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"reward_batch": "current-language"}, "tscl rewards every language by its own dev loss; reward_batch: joint"),
        ({"variant": "released"}, "tscl rewards every language by training text of the first one; reward_batch: joint"),
        ({"algorithm": "window"}, "window fits slopes to each language's own dev losses; algorithm: online"),
        ({"decide_every": 2, "observe_every": 4}, "tscl rewards every language by its own dev loss"),
        ({"variant": "rota"}, None),
        ({"variant": "released", "reward_batch": "joint"}, None),
        ({}, None),
    ],
)
def test_what_a_config_names_stays_and_a_teacher_that_does_not_use_the_goal_says_so(tmp_path, caplog, written, said):
    named = {"name": "tscl", "warmup": None, **written}
    check_before_preparing(config(tmp_path, named, GOAL), tmp_path / "run", Team())
    assert ("the teacher does not use the goal" in caplog.text) == (said is not None)
    assert (said or "") in caplog.text


def test_joint_rewards_are_refused_where_there_are_none(tmp_path):
    with pytest.raises(ConfigError, match="'naive' fits slopes to losses; a joint reward batch gives gains"):
        config(tmp_path, {"name": "tscl", "algorithm": "naive", "reward_batch": "joint"})
    with pytest.raises(ConfigError, match="observe_every is 4; a joint reward is of one choice: leave it out"):
        config(tmp_path, {"name": "tscl", "decide_every": 2, "observe_every": 4, "reward_batch": "joint"})


def test_a_run_that_was_begun_with_rewards_by_its_own_losses_keeps_them(tmp_path):
    before = {"name": "tscl", "warmup": 6, "reward_batch": "current-language"}
    old, whole = Run(tmp_path / "old"), Run(tmp_path / "whole")
    api.train(config(tmp_path, before, GOAL), whole.folder)
    api.train(config(tmp_path, before, GOAL), old.folder, until=10)
    now = config(tmp_path, {"name": "tscl", "warmup": 6}, GOAL)
    assert as_begun(now, old.about["config"]).dump() == old.about["config"]
    api.train(now, old.folder)
    assert old.record_path("steps").read_bytes() == whole.record_path("steps").read_bytes()
    with pytest.raises(ConfigError, match="teacher.reward_batch was 'current-language' and is 'joint'"):
        api.train(config(tmp_path, {**before, "reward_batch": "joint", "absolute": True}, GOAL), old.folder)
