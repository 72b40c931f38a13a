"""Curricula around any teacher: what they add to its decisions, traced by hand from the formulas."""

import math

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from rota.measures import DevLoss, EmbeddingNorm, JointLoss, SourceNorms, TrainSetLosses
from rota.settings import ConfigError
from rota.teachers import AnyTeacherConfig, build_teacher
from rota.teachers.curricula import CURRICULA
from rota.teachers.curricula.actor_critic import STATES, Learner, features
from rota.testing import Rehearsal
from rota.testing.contract import CLASSROOM, observation_of
from rota.types import Emphasis, Pacing, Scoring, Selection


def config(values):
    return TypeAdapter(AnyTeacherConfig).validate_python(values)


def build(curriculum, **teacher):
    values = {"name": "uniform", **teacher, "curriculum": curriculum}
    return build_teacher(config(values), CLASSROOM, np.random.default_rng(1))


def told(teacher, step, values):
    return teacher.tell(observation_of(teacher.watches, step, {"az": 1}, values))


# Competence (Platanios et al. 2019)


def test_the_share_grows_with_the_root_of_time_from_one_percent_to_all():
    teacher = build({"by": "length", "until": "50%"})  # of 200 steps
    for step in (0, 1, 25, 50, 99):
        share = math.sqrt(step * (1 - 0.01**2) / 100 + 0.01**2)
        assert teacher.ask(step).selection == pytest.approx(Selection("length", share, 200))
    assert teacher.ask(100).selection is None
    assert teacher.ask(199).selection is None


def test_the_share_can_grow_along_a_line():
    teacher = build({"by": "rarity-sum", "until": 80, "power": 1, "start": 0.2, "least": 7})
    assert teacher.ask(20).selection == pytest.approx(Selection("rarity-sum", 0.2 + 0.8 / 4, 7))


def test_the_teacher_inside_chooses_as_if_it_were_alone():
    alone = build_teacher(config("tscl"), CLASSROOM, np.random.default_rng(1))
    inside = build({"by": "length"}, name="tscl")
    for step in range(30):
        mine, other = inside.ask(step), alone.ask(step)
        assert (mine.arm, mine.why, mine.probability) == (other.arm, other.why, other.probability)
        for teacher in (alone, inside):
            told(teacher, step + 1, {DevLoss: {"az": 3 - step / 20} | dict.fromkeys(("be", "tr", "ru"), 2.0)})


def test_the_warmup_has_the_curriculum_too():
    teacher = build({"until": "50%"}, warmup=10)
    assert teacher.ask(0).why == "warmup"
    assert teacher.ask(0).selection is not None


# Norm-based (Liu et al. 2020)

NORM = {"name": "norm", "check_every": 2, "refresh_every": 6, "least": 3, "until": 10**15}


def test_the_norm_of_the_embeddings_sets_share_and_weights():
    teacher = build(NORM)
    assert set(teacher.watches) == {EmbeddingNorm(), SourceNorms()}
    first = teacher.ask(0)
    assert first.selection == pytest.approx(Selection("length", 0.01, 3))
    assert first.emphasis == pytest.approx(Emphasis("length", 0.01, 0.5))
    # The first norm is 40: all sentences at 40 + 2.5 * 40 = 140.
    assert teacher.watches == (EmbeddingNorm(),)
    told(teacher, 1, {EmbeddingNorm: 40.0})
    assert teacher.ask(1).selection.share == pytest.approx(0.01)
    assert teacher.watches == ()
    told(teacher, 2, {})
    teacher.ask(2)
    assert teacher.watches == (EmbeddingNorm(),)
    told(teacher, 3, {EmbeddingNorm: 60.0})
    share = math.sqrt(20 / 100 * (1 - 0.01**2) + 0.01**2)
    assert teacher.ask(3).selection.share == pytest.approx(share)
    assert teacher.ask(3).emphasis.competence == pytest.approx(share)
    told(teacher, 4, {})
    teacher.ask(4)
    told(teacher, 5, {EmbeddingNorm: 30.0})  # shorter than at first: no less than the start
    decision = teacher.ask(5)
    assert decision.selection.share == pytest.approx(0.01)
    assert teacher.watches == (SourceNorms(),)
    told(teacher, 6, {SourceNorms: dict.fromkeys(CLASSROOM.arms, 4.0)})
    assert teacher.ask(6).selection.by == "norm"
    told(teacher, 7, {EmbeddingNorm: 140.0})
    decision = teacher.ask(7)
    assert decision.selection is None
    assert decision.emphasis == Emphasis("norm", 1.0, 0.5)


def test_where_the_norm_does_not_grow_the_share_grows_by_the_clock():
    teacher = build({**NORM, "until": 100})
    teacher.ask(0)
    told(teacher, 1, {EmbeddingNorm: 40.0})
    assert teacher.ask(25).selection.share == pytest.approx(math.sqrt(0.25 * (1 - 0.01**2) + 0.01**2))
    assert teacher.ask(100).selection is None


def test_without_a_power_there_are_no_weights():
    assert build({**NORM, "weight_power": 0}).ask(0).emphasis is None


# Relative loss (Xu et al. 2020)


def measure_phase(teacher, step, values):
    teacher.ask(step)
    assert TrainSetLosses() in teacher.watches
    told(teacher, step + 1, values)


MEANS = dict.fromkeys(CLASSROOM.arms, 3.0)


def test_sentences_are_selected_from_the_second_measurement_on():
    teacher = build({"name": "relative-loss", "every": 10, "until": 100, "start": 0.1, "least": 5})
    assert teacher.ask(0).selection is None
    assert teacher.watches == ()
    measure_phase(teacher, 9, {TrainSetLosses: MEANS})
    assert teacher.ask(10).selection is None
    assert teacher.watches == ()
    measure_phase(teacher, 19, {TrainSetLosses: MEANS})
    # Step 20 of 100: sqrt(0.2 * (1 - 0.01) + 0.01).
    assert teacher.ask(20).selection == pytest.approx(Selection("relative-loss", math.sqrt(0.208), 5))
    assert teacher.ask(28).selection.share == pytest.approx(math.sqrt(0.208))  # until the next measurement
    measure_phase(teacher, 99, {TrainSetLosses: MEANS})
    assert teacher.ask(100).selection is None


def test_with_a_target_the_share_is_the_ratio_of_perplexities():
    teacher = build({"name": "relative-loss", "every": 10, "target": 2.0, "start": 0.1})
    dev = {"az": 4.0, "be": 3.0, "tr": 2.5, "ru": 2.5}  # 3.0 on average
    for step in (9, 19):
        measure_phase(teacher, step, {TrainSetLosses: MEANS, DevLoss: dev})
    assert teacher.ask(20).selection.share == pytest.approx(math.exp(-1))
    measure_phase(teacher, 29, {TrainSetLosses: MEANS, DevLoss: dict.fromkeys(CLASSROOM.arms, 9.0)})
    assert teacher.ask(30).selection.share == 0.1
    measure_phase(teacher, 39, {TrainSetLosses: MEANS, DevLoss: dict.fromkeys(CLASSROOM.arms, 1.9)})
    assert teacher.ask(40).selection is None


def test_a_measurement_is_due_where_the_teacher_is_told_not_where_a_phase_ends():
    # A phase ends after 25 updates, the teacher is told every 10: at 30.
    teacher = build({"name": "relative-loss", "every": 25}, decide_every=5, observe_every=10)
    due = {}
    for step in range(0, 40, 5):
        teacher.ask(step)
        due[step] = bool(teacher.watches)
        if (step + 5) % 10 == 0:
            told(teacher, step + 5, {TrainSetLosses: MEANS})
    assert [step for step, is_due in due.items() if is_due] == [20, 25]


def test_a_teacher_that_is_told_at_shares_of_the_run_is_told_of_the_curriculum_then():
    """This one is told every 2 % of the run, 4 updates; a phase ends after 6, so it is measured at 8."""
    room = Rehearsal({"name": "loss-softmax", "curriculum": {"name": "relative-loss", "every": 6}})
    assert room.turns.observe_every == 4
    watched = []
    for step in range(1, 25):
        room.ask()
        room.play()
        if TrainSetLosses() in (room.turns.due(room.step) or ()):
            watched.append(step)
        room.tell()
    assert watched == [8, 16, 24]


# Dropout variance (Wan et al. 2020)


def test_batches_are_weighted_until_the_step_that_the_config_names():
    teacher = build({"name": "dropout-variance", "samples": 4, "power": 1, "until": "10%"})
    assert teacher.ask(19).pacing == Pacing(4, 1)
    assert teacher.ask(20).pacing is None


# Actor and critic (after Zhao et al. 2020)


def value(coefficients, state, action):
    """The critic, term by term."""
    terms = [1.0, *state, *action, *(s * a for s in state for a in action), *(a * a for a in action)]
    return sum(c * term for c, term in zip(coefficients, terms, strict=True))


def filled_learner(count=12, actions=2):
    rng = np.random.default_rng(5)
    learner = Learner(actions, memory=8, step_size=0.1)
    for _ in range(count):
        learner.learn(rng.normal(size=STATES), rng.uniform(-1, 1, actions), float(rng.normal()))
    return learner


def test_the_critic_is_the_ridge_regression_over_its_memory():
    learner = filled_learner()
    assert len(learner.memory) == 8
    gains = np.array([gain for _, _, gain in learner.memory])
    found = learner.critic()

    def objective(coefficients):
        errors = [value(coefficients, s, a) - gain / gains.std() for s, a, gain in learner.memory]
        return np.sum(np.square(errors)) + np.sum(np.square(coefficients[1:]))

    lowest = objective(found)
    for number in range(len(found)):
        for change in (-1e-3, 1e-3):
            assert objective(found + change * np.eye(len(found))[number]) > lowest
    row = features(np.array([[1.0, 2.0, 3.0]]), np.array([[4.0, 5.0]]))[0]
    assert row.tolist() == [1, 1, 2, 3, 4, 5, 4, 5, 8, 10, 12, 15, 16, 25]


def test_the_actor_climbs_what_the_critic_says():
    learner = filled_learner()
    coefficients, states = learner.critic(), [state for state, _, _ in learner.memory]
    before = learner.matrix.copy()

    def mean_value(matrix):
        actions = [np.tanh(matrix @ np.array([1.0, *state])) for state in states]
        return np.mean([value(coefficients, s, a) for s, a in zip(states, actions, strict=True)])

    gradient = np.zeros_like(before)
    for index in np.ndindex(*before.shape):
        step = np.zeros_like(before)
        step[index] = 1e-5
        gradient[index] = (mean_value(before + step) - mean_value(before - step)) / 2e-5
    assert learner._ascent(coefficients, np.array(states)) == pytest.approx(gradient, abs=1e-7)


def test_weights_are_named_for_a_period_and_learned_from_the_gain_of_the_dev_loss():
    teacher = build({"name": "actor-critic", "every": 2, "refresh_every": 100, "noise": 0.0})
    joint = JointLoss(tokens=2_000, weights="average")
    assert set(teacher.watches) == {joint, TrainSetLosses()}
    assert teacher.ask(0).scoring is None
    told(teacher, 1, {JointLoss: 5.0, TrainSetLosses: MEANS})
    # The actor begins with weights of 0 for everything.
    assert teacher.ask(1).scoring == Scoring({"length": 0.0, "rarity": 0.0, "loss": 0.0}, 0.5)
    assert teacher.watches == ()
    told(teacher, 2, {})
    teacher.ask(2)
    assert teacher.watches == (joint,)
    told(teacher, 3, {JointLoss: 4.5})
    ((state, action, gain),) = teacher._learner.memory
    assert state.tolist() == [5.0, 0.0, 1 / 200]
    assert action.tolist() == [0.0, 0.0, 0.0]
    assert gain == 0.5
    teacher.ask(3), told(teacher, 4, {})
    teacher.ask(4), told(teacher, 5, {JointLoss: 4.6})
    assert teacher._learner.memory[1][0].tolist() == [4.5, 0.5, 3 / 200]
    assert teacher._learner.memory[1][2] == pytest.approx(-0.1)


def test_an_actor_learns_which_sentences_help():
    """Gains grow with the weight of the first feature: the actor learns to ask for it, and not for the second."""
    rng, learner = np.random.default_rng(2), Learner(2, memory=200, step_size=0.05)
    for _ in range(300):
        state = rng.normal(size=STATES)
        action = np.clip(learner.act(state) + 0.3 * rng.normal(size=2), -1, 1)
        learner.learn(state, action, 0.01 * action[0] - 0.01 * action[1] ** 2 + 0.005 * rng.normal())
    mean = np.mean([learner.act(rng.normal(size=STATES)) for _ in range(50)], axis=0)
    assert mean[0] > 0.8
    assert abs(mean[1]) < 0.3


# All of them


@pytest.mark.parametrize("name", CURRICULA)
def test_a_curriculum_by_name_has_its_defaults_and_is_written_with_them(name):
    teacher = config({"name": "temperature", "curriculum": name})
    written = teacher.model_dump(mode="json")
    assert written["curriculum"]["name"] == name
    assert config(written) == teacher


def test_what_is_written_of_a_teacher_without_a_curriculum_does_not_name_it():
    for teacher in ("uniform", "proportional", "temperature", "two-phase", "tscl", "dqn", "mixed"):
        assert "curriculum" not in config(teacher).model_dump(mode="json")


@pytest.mark.parametrize(
    ("curriculum", "message"),
    [
        ({"by": "lenght"}, r"curriculum\.by: .*'length', 'rarity' or 'rarity-sum'"),
        ({"by": "length", "untl": 3}, r"unknown key 'curriculum\.untl'; did you mean 'until'"),
        ("competense", "unknown 'name' 'competense'; did you mean 'competence'"),
        ({"name": "dropout-variance", "samples": 1}, "greater than or equal to 2"),
    ],
)
def test_a_mistake_in_a_curriculum_is_named(curriculum, message):
    with pytest.raises(ValidationError, match=message):
        config({"name": "uniform", "curriculum": curriculum})


@pytest.mark.parametrize(
    ("curriculum", "message"),
    [
        ({"name": "norm", "check_every": 100}, r"check_every is 100 steps .*: nothing would be measured"),
        ({"name": "norm", "refresh_every": "100%"}, r"refresh_every is 100 steps .*: nothing would be measured"),
        ({"name": "relative-loss", "every": "50%"}, r"every is 50 steps .*: nothing would be selected"),
    ],
)
def test_a_curriculum_that_would_never_act_is_refused(curriculum, message):
    with pytest.raises(ConfigError, match=message):
        config({"name": "uniform", "curriculum": curriculum}).check(100)


def test_a_phase_of_two_has_no_curriculum_of_its_own():
    with pytest.raises(ValidationError, match="'first' has 'curriculum', .* on the two-phase teacher itself"):
        config({"name": "two-phase", "first": {"name": "uniform", "curriculum": "competence"}})


def test_decisions_with_a_curriculum_can_be_saved():
    for curriculum in ("competence", "norm", "dropout-variance"):
        decision = build(curriculum).ask(3)
        assert type(decision).from_state(decision.state()) == decision


def test_what_a_curriculum_is_not_told_is_refused_before_the_teacher_inside_hears_anything():
    room = Rehearsal({"name": "tscl", "curriculum": {**NORM, "check_every": 1}})
    room.run(2)
    room.ask()
    room.play()
    observation = room.observation()
    del observation.measured[EmbeddingNorm()]
    before = room.teacher.state_dict()
    with pytest.raises(ValueError, match=r"step 3: the observation has no EmbeddingNorm"):
        room.teacher.tell(observation)
    assert room.teacher.state_dict() == before
