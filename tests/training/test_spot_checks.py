"""Spot checks and their two alarms: how much they look at, what they raise, and what they leave alone."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import api
from rota.config import parse_config
from rota.measures import Estimate
from rota.runs import Run
from rota.training.alarms import Alarms
from rota.training.alarms.by_heart import ByHeart, stopped_at
from rota.training.alarms.unaligned import Look, Unaligned, pooled
from rota.training.spot_checks import LEAST, MOST, SpotCheck, SpotChecks


class Sets:
    def __init__(self, count):
        self.arms = tuple(f"l{number}" for number in range(count))


def checks(arms, share, tokens):
    return SpotChecks(None, Sets(arms), share=share, tokens=tokens)


def test_a_laptops_check_has_all_arms_with_a_few_sentences_each():
    # 150 updates of 750 tokens between validations; 1 % of two passes, in 2.5 passes, over eight arms: 112.5
    arms, tokens, turn = checks(8, 0.01, 150 * 750).due(3)
    assert (len(arms), tokens, turn) == (8, 112, 3)


def test_a_long_run_looks_at_no_more_than_it_needs():
    assert checks(8, 0.01, 7_500 * 8_000).due(1)[1] == MOST


def test_a_short_run_looks_at_some_arms_at_a_time_in_rotation():
    # 1 % of 3,750, times 2 / 2.5, is 30 tokens for each validation: half an arm.
    looked = [checks(3, 0.01, 3_750).due(number) for number in range(1, 9)]
    assert [list(arms) for arms, _, _ in looked] == [[], ["l0"], [], ["l1"], [], ["l2"], [], ["l0"]]
    assert all(tokens == LEAST for _, tokens, _ in looked)
    assert [turn for arms, _, turn in looked if arms] == [1, 1, 1, 2]


@given(st.integers(1, 60), st.floats(0.001, 0.3), st.integers(1, 200_000), st.integers(1, 200))
def test_the_checks_stay_within_their_share_of_the_computation(arms, share, tokens, validations):
    looking = checks(arms, share, tokens)
    planned = [looking.due(number) for number in range(1, validations + 1)]
    passes = sum((4 if looking.looks_at_dev(turn) else 2) * len(due) * each for due, each, turn in planned)
    # A check that begins within a turn with dev sentences may end in the next one. If checks and turns keep step, this
    # lasts: at worst two of five checks have dev sentences instead of one of four, which is 2.8 passes instead of 2.5.
    assert passes <= share * 2 * tokens * validations * 1.12 + 2 * LEAST * arms
    played = [arm for due, _, _ in planned for arm in due]
    counts = [played.count(f"l{number}") for number in range(arms)]
    assert max(counts) - min(counts) <= 1


TOKENS = 40_000


def check(gains, *, seen=None, losses=None, epochs=3.0, dev_loss=None):
    arms = list(gains)
    return SpotCheck(
        {arm: Estimate(*gain) for arm, gain in gains.items()},
        {arm: Estimate(*(losses or {}).get(arm, (4.0, 0.1))) for arm in arms},
        {},
        dev_loss or {},
        {arm: (seen or {}).get(arm, TOKENS) for arm in arms},
        dict.fromkeys(arms, epochs),
    )


def raised(detector, found):
    alarms = Alarms([detector])
    return [(alarm.step, alarm.arm) for step, each in enumerate(found, start=1) for alarm in alarms.checked(step, each)]


CLEAN = {"az": (0.10, 0.03), "pt": (0.40, 0.05), "ru": (0.35, 0.05), "tr": (0.30, 0.05)}


def test_an_arm_without_gain_while_the_others_have_grown_is_named_once():
    found = [
        check({**CLEAN, "gl": (0.002, 0.004)}, seen=dict.fromkeys(["az", "pt", "ru", "tr", "gl"], n)) for n in range(12)
    ]
    # Six checks are pooled; from then on three in a row must say so.
    assert raised(Unaligned(), found) == [(8, "gl")]
    detector = Unaligned()
    *_, [alarm] = [list(detector.checked(step, each)) for step, each in enumerate(found[:8])]
    assert alarm.text.startswith("gl: the student finds next to nothing of the source in the target (0.002 ± 0.002")
    assert alarm.text.endswith("are its lines aligned?")


@pytest.mark.parametrize(
    ("gains", "why"),
    [
        ({**CLEAN, "gl": (0.05, 0.01)}, "a small gain is a gain"),
        ({**CLEAN, "gl": (0.0, 0.05)}, "the error is too large to tell"),
        ({"az": (0.05, 0.01), "ru": (0.06, 0.01), "gl": (0.0, 0.001)}, "the others have not grown either"),
        ({"gl": (0.0, 0.001)}, "there is nothing to compare it with"),
    ],
)
def test_no_alarm_where(gains, why):
    assert raised(Unaligned(), [check(gains, seen=dict.fromkeys(gains, n)) for n in range(20)]) == [], why


def test_a_language_that_was_hardly_trained_on_is_compared_with_the_others_when_they_were():
    """After 1,000 tokens of their own the others had no gain yet either."""

    def at(step):
        grown = min(0.4, 0.04 * max(0, step - 2))
        return check(
            {"ru": (grown, 0.01), "tr": (grown, 0.01), "be": (0.0, 0.001)},
            seen={"ru": 1_000 * step, "tr": 1_000 * step, "be": 100 * step},
        )

    assert raised(Unaligned(), [at(step) for step in range(1, 21)]) == []
    fed = [at(step)._replace(seen=dict.fromkeys(("ru", "tr", "be"), 1_000 * step)) for step in range(1, 21)]
    assert [arm for _, arm in raised(Unaligned(), fed)] == ["be"]


def test_the_error_of_few_sentences_is_not_taken_at_its_word():
    """Gains of 0 and 0.1 with errors of 0: what lies between the checks counts."""
    looks = [{**CLEAN, "gl": (0.1 * (n % 2), 0.0)} for n in range(20)]
    assert raised(Unaligned(), [check(gains, seen=dict.fromkeys(gains, n)) for n, gains in enumerate(looks)]) == []
    error = pooled([Look(1, 0.1 * (n % 2), 0.0) for n in range(6)]).error
    assert error == pytest.approx(np.std([0.0, 0.1] * 3, ddof=1) / np.sqrt(6))


def test_one_check_with_a_gain_ends_the_suspicion():
    nothing, something = {**CLEAN, "gl": (0.0, 0.001)}, {**CLEAN, "gl": (0.2, 0.01)}
    looks = [nothing] * 7 + [something] + [nothing] * 3
    assert raised(Unaligned(), [check(gains, seen=dict.fromkeys(gains, n)) for n, gains in enumerate(looks)]) == []


def heart(dev, train, *, epochs=5.0, error=0.05):
    """Alarms about one arm with these dev losses and training losses at the validations 100, 200, ..."""
    detector, found = ByHeart(), []
    for number, (loss, sampled) in enumerate(zip(dev, train, strict=True), start=1):
        looked = check({"az": (0.1, 0.1)}, losses={"az": (sampled, error)}, epochs=epochs, dev_loss={"az": loss})
        found += detector.checked(100 * number, looked)
    return found


FALLING = [5.0, 4.5, 4.2, 4.0, 3.9, 3.8, 3.7]
STALLED = [5.0, 4.5, 4.2, 4.3, 4.4, 4.5, 4.6]


def test_an_arm_whose_dev_loss_rises_while_its_training_loss_falls_is_learned_by_heart():
    train = [5.0, 4.2, 3.4, 2.6, 2.0, 1.6, 1.2]
    first = heart(STALLED[:6], train[:6])
    assert [(alarm.step, alarm.kind, alarm.arm) for alarm in first] == [(600, "by-heart", "az")]
    # Best at step 300; gap: 4.5 minus the mean of 2.6, 2.0 and 1.6.
    assert first[0].text.startswith("az: learned by heart since step 300 (gap 2.4 nats), 5 epochs;")


@pytest.mark.parametrize(
    ("dev", "train", "options", "why"),
    [
        (FALLING, [5.0, 4.2, 3.4, 2.6, 2.0, 1.6, 1.2], {}, "the dev loss falls"),
        (STALLED, [4.2] * 7, {}, "the training loss does not fall"),
        (STALLED, [5.0, 4.2, 3.4, 3.3, 3.2, 3.1, 3.0], {"error": 3.0}, "the fall is within its error"),
        (STALLED, [5.0, 4.2, 3.4, 2.6, 2.0, 1.6, 1.2], {"epochs": 0.9}, "most sentences were not seen yet"),
        (STALLED, [9.0, 8.5, 8.0, 7.5, 7.0, 6.5, 6.0], {}, "training sentences are harder than dev sentences"),
    ],
)
def test_nothing_is_learned_by_heart_where(dev, train, options, why):
    assert heart(dev, train, **options) == [], why


def test_when_a_loss_stopped_falling():
    assert stopped_at([3.0, 2.0, 1.0]) is None, "too few validations"
    assert stopped_at([3.0, 2.0, 2.1, 2.2, 2.3]) == 1
    assert stopped_at([3.0, 2.0, 1.999, 1.998, 1.996]) == 1, "less than 0.005 is not better"
    assert stopped_at([3.0, 2.0, 2.1, 2.2, 1.99]) is None


@pytest.mark.parametrize("kind", [Unaligned, ByHeart])
def test_a_detector_that_was_saved_goes_on(kind):
    def follow(cut):
        detector, found = kind(), []
        for number in range(1, 13):
            if number == cut:
                state = json.loads(json.dumps(detector.state_dict()))
                detector = kind()
                detector.load_state_dict(state)
            gains = {**CLEAN, "gl": (0.0, 0.001)}
            losses = dict.fromkeys(gains, (5.0 - 0.3 * number, 0.02))
            dev = {**dict.fromkeys(CLEAN, 4.0 + 0.1 * abs(number - 4)), "gl": 4.0}
            seen = dict.fromkeys(gains, number)
            found += detector.checked(number, check(gains, seen=seen, losses=losses, dev_loss=dev))
        return found, detector.state_dict()

    whole = follow(None)
    assert whole[0]
    assert follow(6) == whole


SMALL = {
    "data": {
        "corpus": "synthetic",
        "synthetic": {"families": {"la": {"lala": 60, "lato": 60}}, "dev": 30, "test": 5},
        "subwords": {"size": 300},
    },
    "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "dropout": 0.3},
    "training": {"steps": 12, "tokens": 200, "validate_every": 3, "checkpoint_every": 5, "tensorboard": False},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return tmp_path_factory.mktemp("spot_checks") / "data"


@pytest.fixture
def train(data):
    return lambda folder, share, until=None: trained(data, folder, share, until)


def trained(data, folder, share, until):
    values = {**SMALL, "data": {**SMALL["data"], "folder": str(data)}}
    values["training"] = {**values["training"], "spot_checks": share}
    return api.train(parse_config(values), folder, until=until)


def test_checks_are_recorded_and_training_is_the_same_to_the_last_bit_with_and_without_them(tmp_path, train):
    with_checks, without = train(tmp_path / "with", 0.5), train(tmp_path / "without", 0.0)
    entries = list(Run(tmp_path / "with").read("spot_checks"))
    assert [entry["step"] for entry in entries] == [3, 6, 9, 12]
    assert [bool(entry["dev_source_gain"]) for entry in entries] == [False, False, False, True]
    for name in ("source_gain", "dev_source_gain", "train_loss"):
        assert all(len(pair) == 2 and all(map(math.isfinite, pair)) for pair in entries[-1][name].values())
    assert set(entries[-1]["source_gain"]) == {"lala", "lato"}
    seen, sizes = with_checks.seen, with_checks.probe.sets.train_tokens
    assert entries[-1]["epochs"] == {arm: round(seen[arm] / sizes[arm], 3) for arm in sizes}
    assert not (tmp_path / "without" / "spot_checks.jsonl").exists()
    for record in ("steps.jsonl", "validations.jsonl"):
        assert (tmp_path / "with" / record).read_bytes() == (tmp_path / "without" / record).read_bytes()
    weights = [loop.student.state_dict()["network"] for loop in (with_checks, without)]
    assert all(np.array_equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_run_cut_in_two_has_the_checks_of_a_whole_one(tmp_path, train):
    whole = train(tmp_path / "whole", 0.5)
    train(tmp_path / "cut", 0.5, until=7)
    cut = train(tmp_path / "cut", 0.5)
    names = ("spot_checks.jsonl", "validations.jsonl")
    assert all((tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes() for name in names)
    assert cut.alarms.state_dict() == whole.alarms.state_dict()


def test_a_run_may_go_on_with_other_checks_and_its_fingerprint_is_that_of_before(tmp_path, train):
    train(tmp_path / "run", 0.4, until=7)
    train(tmp_path / "run", 0.0)
    assert [entry["step"] for entry in Run(tmp_path / "run").read("spot_checks")] == [3, 6]
    config = parse_config({"data": {"corpus": "synthetic"}})
    assert "spot_checks" not in config.dump()["training"]
    assert (
        parse_config({"data": {"corpus": "synthetic"}, "training": {"spot_checks": 0}}).dump()["training"][
            "spot_checks"
        ]
        == 0
    )
