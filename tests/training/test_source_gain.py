"""The gain from the source: which sources are lent, the arithmetic, and a real student."""

from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota import api
from rota.config import parse_config
from rota.data.store import Flat, Sentences
from rota.measures import Estimate, Scene, SourceGain
from rota.student.nmt import build_student
from rota.training.devsets import DevSets, Sample
from rota.training.gauges.source import compare_sources, mismatched_pairs, other_sources, per_token
from rota.training.probe import Probe
from rota.training.turns import Window
from rota.types import SentenceLosses

NOTHING = Window((), {})


def flat(texts):
    return Flat(np.concatenate(texts), np.concatenate([[0], np.cumsum([len(text) for text in texts])]))


def arm_of(texts, targets=None):
    """One arm, "az", with these source sentences as lists of tokens."""
    texts = [np.array(text) for text in texts]
    return Sentences(flat(texts), flat(texts if targets is None else targets), {"az": (0, len(texts))})


def lenders(texts, sample=None, pool=None):
    everything = np.arange(len(texts))
    chosen = everything if sample is None else np.array(sample)
    found = other_sources(Sample(arm_of(texts), "az", chosen), everything if pool is None else np.array(pool))
    return None if found is None else found.tolist()


def test_each_sentence_is_lent_the_source_of_the_nearest_length():
    # Lengths 2, 3, 6, 7: 0 and 1 exchange, 2 and 3 exchange.
    assert lenders([[1] * 2, [2] * 3, [3] * 6, [4] * 7]) == [1, 0, 3, 2]
    # Lengths 1, 5, 6, 20: the second is one away from the third, the last has only neighbours that are shorter.
    assert lenders([[1], [2] * 5, [3] * 6, [4] * 20]) == [1, 2, 1, 2]


def test_no_sentence_is_lent_its_own_text_however_often_it_stands_in_the_corpus():
    texts = [[7, 7], [7, 7], [7, 7], [8, 8, 8, 8], [7, 7]]
    assert lenders(texts) == [3, 3, 3, pytest.approx(0, abs=4), 3]
    assert texts[lenders(texts)[3]] == [7, 7]


def test_where_all_sources_are_one_text_there_is_nothing_to_lend():
    assert lenders([[7, 7], [7, 7]]) is None
    assert lenders([[7, 7]]) is None


@given(
    st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=6), min_size=2, max_size=30),
    st.data(),
)
def test_a_lent_source_is_another_text_of_the_pool_and_none_is_nearer(texts, data):
    sample = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1), min_size=1)))
    pool = sorted(data.draw(st.sets(st.integers(0, len(texts) - 1), min_size=1)))
    available = {*sample, *pool}
    found = lenders(texts, sample, pool)
    if len({tuple(texts[i]) for i in available}) == 1:
        assert found is None
        return
    for mine, theirs in zip(sample, found, strict=True):
        assert theirs in available
        assert texts[theirs] != texts[mine]
        others = [abs(len(texts[i]) - len(texts[mine])) for i in available if texts[i] != texts[mine]]
        assert abs(len(texts[theirs]) - len(texts[mine])) == min(others)


def test_the_mean_per_token_and_its_error():
    sums, tokens = np.array([2.0, 0.0, 4.0]), np.array([1, 2, 3])
    # Ratio 6 / 6 = 1; residuals 1, -2, 1, squares 6; 6 * 3 / 2 = 9, root 3, per token 3 / 6.
    assert per_token(sums, tokens) == Estimate(1.0, 0.5)


def test_the_error_is_that_of_resampling():
    rng = np.random.default_rng(1)
    tokens = rng.integers(3, 40, 400)
    sums = tokens * rng.normal(0.3, 1.0, 400)
    resampled = [per_token(sums[pick], tokens[pick]).value for pick in rng.integers(0, 400, (2000, 400))]
    assert per_token(sums, tokens).error == pytest.approx(np.std(resampled), rel=0.08)


class Copyist:
    """Its loss is 1 nat per token where the source is the target, and 3 where it is not; twice that when averaged."""

    def __init__(self):
        self.calls = 0

    def keep_average(self, decay):
        """It has no weights to average."""

    def losses(self, batches, *, smoothed=False, weights="raw"):
        self.calls += 1
        sums, tokens = [], []
        for batch in batches:
            sources = np.split(batch.source, np.cumsum(batch.source_lengths)[:-1])
            targets = np.split(batch.target, np.cumsum(batch.target_lengths)[:-1])
            right = [source.tolist() == target.tolist() for source, target in zip(sources, targets, strict=True)]
            sums += [len(target) * (1.0 if is_right else 3.0) for target, is_right in zip(targets, right, strict=True)]
            tokens += [len(target) for target in targets]
        return SentenceLosses(np.array(sums) * (2 if weights == "average" else 1), np.array(tokens))


class TwoArms:
    """A store: az has right sources, be those of its next sentence; each sentence is a number of its own, repeated."""

    languages = arms = ("az", "be")
    language_of = {"az": "az", "be": "be"}  # noqa: RUF012 - it is not changed

    def __init__(self, count=40):
        rng = np.random.default_rng(3)
        lengths = rng.integers(2, 12, 2 * count)
        texts = [np.full(length, number) for number, length in enumerate(lengths)]
        shuffled = [*texts[:count], *texts[count + 1 :], texts[count]]
        self._both = Sentences(flat(shuffled), flat(texts), {"az": (0, count), "be": (count, 2 * count)})

    def split(self, name):
        return self._both


def two_arms():
    return DevSets(TwoArms(), teacher_share=0.5, division="alternate", validate_tokens=100)


@pytest.mark.parametrize("data", ["train", "dev"])
def test_text_that_is_not_a_translation_has_no_gain(data):
    student = Copyist()
    measure = SourceGain(data=data, tokens=60)
    found = Probe(student, two_arms()).read(1, [measure], NOTHING)[measure]
    assert found == {"az": Estimate(2.0, 0.0), "be": Estimate(0.0, 0.0)}
    assert student.calls == 1


def test_averaged_weights_are_measured_where_asked_for():
    measure = SourceGain(weights="average")
    assert Probe(Copyist(), two_arms()).read(1, [measure], NOTHING)[measure]["az"].value == 4.0


def test_only_the_arms_played_are_measured_where_asked_for():
    measure = SourceGain(arms="played")
    assert list(Probe(Copyist(), two_arms()).read(1, [measure], Window((), {"be": (1.0, 1)}))[measure]) == ["be"]


def samples(sets, turns, tokens=40):
    return [sets.sample("train", "az", tokens, turn).indices.tolist() for turn in range(turns)]


def test_a_rotating_sample_goes_through_the_corpus_and_begins_again():
    sets = two_arms()  # 40 sentences
    found = samples(sets, 40)
    size = len(found[0])
    stride = 40 // size
    assert size >= 2
    assert found[0] == [stride * i for i in range(size)]
    assert sorted(chain.from_iterable(found[:stride])) == list(range(stride * size))
    assert found[stride] == found[0]


def test_a_sample_has_about_the_tokens_asked_for_and_two_sentences_at_least():
    sets, train = two_arms(), TwoArms().split("train")
    lengths = train.target.lengths(np.arange(40))
    assert len(samples(sets, 1, tokens=1)[0]) == 2
    assert len(samples(sets, 1, tokens=10_000)[0]) == 40
    assert len(samples(sets, 1, tokens=60)[0]) == round(60 / lengths.mean())


class Listing(Copyist):
    """Remembers which targets it was shown."""

    def __init__(self):
        super().__init__()
        self.shown = []

    def losses(self, batches, **how):
        self.shown.append([batch.target.tolist() for batch in batches])
        return super().losses(batches, **how)


def test_a_fixed_sample_stays_and_a_rotating_one_goes_on_after_a_checkpoint():
    def shown(measure, cut):
        student = Listing()
        probe = Probe(student, two_arms())
        for reading in range(4):
            if reading == cut:
                state = probe.state_dict()
                probe = Probe(student, two_arms())
                probe.load_state_dict(state)
            probe.read(1, [measure], NOTHING)
        return student.shown

    fixed = shown(SourceGain(sample="fixed", tokens=40), cut=2)
    assert fixed == [fixed[0]] * 4
    rotating = shown(SourceGain(tokens=40), cut=None)
    assert rotating[0] != rotating[1]
    assert shown(SourceGain(tokens=40), cut=2) == rotating


def test_an_arm_with_a_single_source_is_left_out():
    class Repeated(TwoArms):
        def __init__(self):
            same = [np.full(4, 7)] * 10
            different = [np.full(4, number) for number in range(10)]
            self._both = Sentences(
                flat([*same, *different]), flat([*same, *different]), {"az": (0, 10), "be": (10, 20)}
            )

    sets = DevSets(Repeated(), teacher_share=0.5, division="alternate", validate_tokens=100)
    assert list(mismatched_pairs(sets, "train", ("az", "be"), 100, 0)) == ["be"]
    assert compare_sources(Copyist(), {}) == {}


def test_a_scripted_student_takes_more_from_the_source_the_lower_its_loss():
    scene = Scene({"az": 2.0, "be": 4.0}, {}, {"be": (4.0, 1)})
    found = SourceGain().imagine(scene)
    assert found["az"].value == pytest.approx(np.exp(-2))
    assert found["az"].value > found["be"].value > 0
    assert list(SourceGain(arms="played").imagine(scene)) == ["be"]


def test_a_real_student_is_measured_in_one_call_as_sentence_by_sentence(tmp_path):
    config = parse_config(
        {
            "data": {
                "corpus": "synthetic",
                "synthetic": {"families": {"la": {"lala": 60, "lato": 60}}, "dev": 40, "test": 5},
                "subwords": {"size": 300},
                "folder": str(tmp_path / "data"),
            },
            "student": {"preset": "tiny", "width": 32, "heads": 2, "feedforward": 32, "layers": 1},
        }
    )
    store = api.prepare(config)
    student = build_student(config.student, vocabulary=store.manifest.vocabulary, steps=10, seed=1)
    sets = DevSets(store, teacher_share=0.5, division="text", validate_tokens=500)
    measure = SourceGain(tokens=150)
    found = Probe(student, sets).read(1, [measure], NOTHING)[measure]
    train = store.split("train")
    for arm in store.languages:
        sample = sets.sample("train", arm, 150)
        lent = other_sources(sample, np.arange(*train.range(arm)))
        differences = []
        for mine, theirs in zip(sample.indices, lent, strict=True):
            right = train.batch(arm, np.array([mine]))
            other = train.batch(arm, np.array([theirs]))
            wrong = replace(right, source=other.source, source_lengths=other.source_lengths)
            differences.append(student.losses([wrong]).sums[0] - student.losses([right]).sums[0])
        tokens = train.target.lengths(sample.indices).sum()
        assert found[arm].value == pytest.approx(np.sum(differences) / tokens, abs=1e-5)
