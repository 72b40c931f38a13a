import numpy as np
import pytest

from rota.data.store import Flat, Sentences
from rota.measures import DevLoss, GroupLosses, JointLoss, TrainSampleLoss
from rota.training.devsets import DevSets
from rota.training.probe import Probe
from rota.training.turns import Window
from rota.types import Decision, Examined, SentenceLosses


def sentences(lengths_by_language):
    """Sentence i of a split holds the number i, as often as it is long."""
    lengths = np.concatenate(list(lengths_by_language.values()))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    flat = Flat(np.repeat(np.arange(len(lengths)), lengths), offsets)
    ends = np.cumsum([len(each) for each in lengths_by_language.values()]).tolist()
    ranges = {arm: (end - len(each), end) for (arm, each), end in zip(lengths_by_language.items(), ends, strict=True)}
    return Sentences(flat, flat, ranges)


class FakeStore:
    def __init__(self, dev, train=None):
        self.languages = self.arms = tuple(dev)
        self.language_of = {arm: arm for arm in dev}
        self._splits = {"dev": sentences(dev), "train": sentences(train or dev)}

    def split(self, name):
        return self._splits[name]


class CountingStudent:
    """Its loss on sentence i is i nats per token (10 * i with smoothing); counts the sentences it was shown."""

    def __init__(self):
        self.shown = []

    def losses(self, batches, *, smoothed=False, weights="raw"):
        first = np.concatenate([batch.target[np.cumsum(batch.target_lengths) - 1] for batch in batches])
        tokens = np.concatenate([batch.target_lengths for batch in batches])
        self.shown.append(len(first))
        return SentenceLosses(first * tokens * (10.0 if smoothed else 1.0), tokens)

    def examine(self, batches, *, temperatures=(), weights="raw"):
        """Every second token is right; averaged weights have half the loss; the best temperature is 1 / 0.85."""
        sums, tokens = self.losses(batches)
        sums = sums / 2 if weights == "average" else sums
        losses = [sums + tokens * (1 / temperature - 0.85) ** 2 - tokens * 0.15**2 for temperature in temperatures]
        return Examined(sums, tokens, tokens // 2, np.array(losses))


def make(dev, *, teacher_share=0.5, train=None):
    store = FakeStore(dev, train)
    return DevSets(store, teacher_share=teacher_share, division="alternate", validate_tokens=1000)


def read(probe, measure, arm="az"):
    return probe.read(1, [measure], Window(((Decision(arm, "test"), 1),), {arm: (0.0, 1)}))[measure]


@pytest.mark.parametrize(("count", "share"), [(10, 0.5), (243, 0.5), (7, 0.3), (2, 0.1), (2, 0.9), (100, 0.25)])
def test_the_two_parts_of_a_dev_set_are_disjoint_and_together_the_whole(count, share):
    sets = make({"az": [3] * count}, teacher_share=share)
    teacher, selection = sets.teacher_part("az").tolist(), sets.selection_part("az").tolist()
    assert sorted(teacher + selection) == list(range(count))
    assert len(teacher) == pytest.approx(share * count, abs=1)
    assert teacher
    assert selection


def test_a_single_sentence_serves_both():
    sets = make({"az": [3], "tr": [2] * 4})
    assert sets.teacher_part("az").tolist() == sets.selection_part("az").tolist() == [0]
    assert Probe(CountingStudent(), sets).validate(step=1).dev_loss["az"] == 0.0


def test_a_share_of_one_uses_the_whole_set_for_both():
    sets = make({"az": [3] * 5}, teacher_share=1.0)
    assert sets.teacher_part("az").tolist() == sets.selection_part("az").tolist() == [0, 1, 2, 3, 4]


def test_reward_batches_have_at_most_the_tokens_they_may():
    sets = make({"az": [4] * 100, "be": [4] * 3}, teacher_share=1.0)
    batches = sets.by_arm(DevLoss(tokens=40))
    assert batches["az"].tokens == 40
    assert batches["be"].tokens == 12, "all there is"


def test_the_joint_batch_has_as_many_tokens_of_every_language():
    sets = make({"az": [4] * 100, "be": [2] * 100}, teacher_share=1.0)
    assert sets.joint(JointLoss(tokens=80)).tokens_by_language == {"az": 40, "be": 40}


def test_a_prototype_of_eight_languages_has_two_hundred_losses():
    sets = make({str(number): [5] * 600 for number in range(8)})
    groups = sets.groups(GroupLosses())
    assert groups.count == 200
    assert set(groups.sizes[0].tolist()) == {10}
    assert sum(batch.sentences for batch in groups.batches) == 2000


def test_groups_shrink_where_sentences_are_few():
    # Belarusian has 243 dev sentences: 122 for the teacher, so 25 groups of floor(122 / 25) = 4.
    sets = make({"be": [5] * 243})
    assert len(sets.teacher_part("be")) == 122
    assert sets.groups(GroupLosses()).sizes[0].tolist() == [4] * 25


def test_a_group_has_one_sentence_at_the_least():
    sets = make({"az": [5] * 12})
    assert sets.groups(GroupLosses()).sizes[0].tolist() == [1] * 25
    assert set(sets.groups(GroupLosses()).batches[0].target.tolist()) == set(sets.teacher_part("az").tolist())


def test_a_group_loss_is_its_mean_per_token_not_per_sentence():
    # Two groups of two sentences with 1 + 3 and 1 + 1 tokens and losses of 0, 1, 2, 3 nats per token.
    sets = make({"az": [1, 3, 1, 1]}, teacher_share=1.0)
    found = read(Probe(CountingStudent(), sets), GroupLosses(groups=2, sentences=2))
    assert found.tolist() == [(0 * 1 + 1 * 3) / 4, (2 + 3) / 2]


def test_the_released_code_sums_smoothed_losses():
    sets = make({"az": [1, 3, 1, 1]}, teacher_share=1.0)
    measure = GroupLosses(groups=2, sentences=2, summed=True)
    assert read(Probe(CountingStudent(), sets), measure).tolist() == [30.0, 50.0]


def test_rotation_measures_every_kth_group_and_keeps_the_others():
    sets = make({"az": [1] * 60, "tr": [1] * 60}, teacher_share=1.0)
    measure = GroupLosses(groups=6, sentences=10, refresh_every=4)
    student = CountingStudent()
    probe = Probe(student, sets)
    first = read(probe, measure)
    assert sum(student.shown) == 120, "the first observation measures all"
    student.shown.clear()
    student.losses = lambda batches, smoothed=False, weights="raw": SentenceLosses(
        np.full(sum(batch.sentences for batch in batches), -1.0), np.ones(sum(batch.sentences for batch in batches))
    )
    second = read(probe, measure)
    changed = np.flatnonzero(first != second).tolist()
    assert changed == [0, 4, 8], "twelve groups in four turns"
    third = read(probe, measure)
    assert np.flatnonzero(second != third).tolist() == [1, 5, 9]


def test_rotation_goes_on_where_it_was_saved():
    sets, measure = make({"az": [1] * 60}, teacher_share=1.0), GroupLosses(groups=6, refresh_every=3)
    probe, other = Probe(CountingStudent(), sets), Probe(CountingStudent(), sets)
    for _ in range(2):
        read(probe, measure)
    other.load_state_dict(probe.state_dict())
    assert read(other, measure).tolist() == read(probe, measure).tolist()
    assert other.state_dict()["turn"] == probe.state_dict()["turn"]


def test_only_the_language_just_trained_is_measured_for_its_reward():
    student = CountingStudent()
    sets = make({"az": [2] * 4, "tr": [2] * 6}, teacher_share=1.0)
    assert read(Probe(student, sets), DevLoss(), arm="tr") == {"tr": (4 + 5 + 6 + 7 + 8 + 9) / 6}
    assert student.shown == [6]


def test_the_released_tscl_rewards_every_language_with_a_training_batch_of_the_first():
    sets = make({"az": [1] * 4, "tr": [1] * 4}, train={"az": [1, 1], "tr": [1] * 9})
    assert read(Probe(CountingStudent(), sets), DevLoss(data="first-arm-train"), arm="tr") == {"tr": 0.5}


def test_validation_gives_the_mean_per_token_of_every_language():
    sets = make({"az": [1, 1, 3, 1], "tr": [2, 2]}, teacher_share=1.0)
    found = Probe(CountingStudent(), sets).validate(step=1)
    assert found.dev_loss == {"az": (0 + 1 + 6 + 3) / 6, "tr": 4.5}
    assert found.averaged is None


def test_validation_records_the_calibrated_loss_its_temperature_and_the_accuracy():
    sets = make({"az": [1, 1, 3, 1], "tr": [2, 2]}, teacher_share=1.0)
    record = Probe(CountingStudent(), sets, averaged=True).validate(step=1).record()
    assert list(record) == ["dev_loss", "calibrated_loss", "temperature", "accuracy", "average"]
    assert record["dev_loss"] == {"az": (0 + 1 + 6 + 3) / 6, "tr": 4.5}
    assert record["calibrated_loss"]["tr"] == pytest.approx(4.5 - 0.15**2)
    assert record["temperature"]["tr"] == pytest.approx(1 / 0.85)
    assert record["accuracy"] == {"az": 1 / 6, "tr": 0.5}
    assert record["average"]["dev_loss"] == {"az": (0 + 1 + 6 + 3) / 12, "tr": 2.25}
    assert record["average"]["calibrated_loss"]["az"] == pytest.approx((0 + 1 + 6 + 3) / 12 - 0.15**2)


def test_sizes_are_reported():
    sizes = make({"be": [5] * 243}).sizes()
    assert sizes["teacher_sentences"] == {"be": 122}
    assert sizes["selection_sentences"] == {"be": 121}
    assert sizes["group_sentences"] == {"be": 4}
    assert sizes["reward_tokens"] == {"be": 610}


def test_prototype_sentences_are_the_first_ones_or_spread_over_the_set():
    # Three groups of two of 60 sentences: the first six, or every twelfth (0, 59 / 5, ...), rounded.
    sets = make({"az": [1] * 60}, teacher_share=1.0)
    found = {spread: sets.groups(GroupLosses(groups=3, sentences=2, spread=spread)) for spread in (False, True)}
    assert found[False].batches[0].target.tolist() == [0, 1, 2, 3, 4, 5]
    assert found[True].batches[0].target.tolist() == [0, 12, 24, 35, 47, 59]
    assert found[True].sizes[0].tolist() == [2, 2, 2]


def test_a_set_with_fewer_sentences_than_the_groups_hold_is_used_as_before():
    sets = make({"az": [1] * 7}, teacher_share=1.0)
    first, spread = (sets.groups(GroupLosses(groups=3, sentences=5, spread=each)) for each in (False, True))
    assert first.batches[0].target.tolist() == spread.batches[0].target.tolist() == [0, 1, 2, 3, 4, 5]


def test_the_loss_on_training_sentences_is_of_the_same_ones_every_time_spread_over_the_text():
    # az has the sentences 0 to 9 of two tokens each; 8 tokens are four sentences, every second one.
    sets = make({"az": [2] * 10, "tr": [4] * 6})
    student, measure = CountingStudent(), TrainSampleLoss(tokens=8)
    probe = Probe(student, sets)
    # Of az 0, 2, 4, 6: 3 nats per token. Of tr, two of the sentences 10 to 15, three apart: 10 and 13.
    assert read(probe, measure) == {"az": 3.0, "tr": 11.5}
    assert read(probe, measure) == {"az": 3.0, "tr": 11.5}
    assert student.shown == [6, 6]


def test_a_calibrated_dev_loss_is_the_lowest_over_temperatures():
    class Sure(CountingStudent):
        """Its loss is 3 + (inverse temperature - 0.7) squared: 3.09 as it is, 3 at its best."""

        def examine(self, batches, *, temperatures, weights="raw"):
            tokens = np.concatenate([batch.target_lengths for batch in batches])
            sums = [tokens * (3 + (1 / each - 0.7) ** 2) for each in (1.0, *temperatures)]
            return Examined(sums[0], tokens, tokens, np.array(sums[1:]))

    sets = make({"az": [2] * 10, "tr": [4] * 6})
    assert read(Probe(Sure(), sets), DevLoss(calibrated=True)) == {"az": pytest.approx(3.0)}
