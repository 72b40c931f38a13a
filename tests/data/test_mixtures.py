"""Batches of several languages with given shares: exact on average, resumable; in proportion, each sentence once."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_batches import STORE, drawn

from rota.data.batches import MixtureStream, make_stream
from rota.data.order import epoch_order
from rota.types import Mixture

SIZES = {"az": 3000, "be": 50, "tr": 5000}
EXTENTS = {"az": (0, 3000), "be": (3000, 3050), "tr": (3050, 8050)}
UNEQUAL = {"az": 0.2, "be": 0.1, "tr": 0.7}


def mixture(shares, tokens=1000, seed=1, name="a mixture"):
    return make_stream(STORE, name, tokens, seed, mixture=Mixture(shares, "sentence"))


def counts(batches):
    indices = drawn(batches)
    return {arm: int(((indices >= start) & (indices < stop)).sum()) for arm, (start, stop) in EXTENTS.items()}


def pool_of(stream):
    """The batches of the next pool."""
    batches = [next(stream)]
    while stream.state_dict()["position"] < stream.batches_per_epoch:
        batches.append(next(stream))
    return batches


def same(one, other):
    return np.array_equal(one.target, other.target) and np.array_equal(one.source, other.source)


@pytest.mark.parametrize("scale", [1, 1 / 8050, 3.7])
def test_shares_in_proportion_to_the_corpus_give_every_sentence_once_per_epoch(scale):
    """Whatever unit the shares have: the order is that of all sentences under this name, seed and epoch."""
    stream = mixture({arm: scale * size for arm, size in SIZES.items()}, name="mixed")
    sentences = STORE.split("train")
    for epoch in range(2):
        rng = np.random.default_rng([1, zlib.crc32(b"mixed"), epoch])
        expected = epoch_order(sentences, np.arange(8050, dtype=np.int32), 1000, rng, "even")
        for position in range(len(expected)):
            assert same(next(stream), sentences.batch("mixed", expected.batch(position)))
    next(stream)
    state = {"arm": "mixed", "tokens": 1000, "epoch": 2, "position": 1}
    assert stream.state_dict() == state | {
        "shares": {arm: size / 8050 for arm, size in SIZES.items()},
        "languages": {},
    }


def test_languages_without_a_share_are_left_out():
    ours, high = (mixture(shares, name="high") for shares in ({"az": 0, "be": 0, "tr": 0.3}, {"tr": 5000}))
    assert all(same(next(ours), next(high)) for _ in range(50))
    assert counts(pool_of(mixture({"az": 1, "tr": 2})))["be"] == 0


def test_a_pool_has_the_shares_to_the_sentence():
    stream = mixture(UNEQUAL)
    for _ in range(20):
        found = counts(pool_of(stream))
        total = sum(found.values())
        assert all(abs(found[arm] - share * total) < 1 for arm, share in UNEQUAL.items())


def test_shares_too_small_for_a_pool_are_right_on_average():
    stream = mixture({"az": 0.001, "be": 0.4, "tr": 0.599})  # 125 sentences a pool, for be not to repeat
    pools = [counts(pool_of(stream)) for _ in range(800)]
    az = [found["az"] for found in pools]
    assert set(az) == {0, 1}
    assert abs(np.mean(az) - 0.125) < 4 * np.sqrt(0.125 * 0.875 / 800)


@given(st.fixed_dictionaries({arm: st.floats(0.01, 1) for arm in SIZES}), st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_any_shares_are_met_within_one_sentence_a_pool(shares, seed):
    stream = MixtureStream(STORE.split("train"), "any", shares, tokens=2000, seed=seed)
    for _ in range(5):
        found = counts(pool_of(stream))
        total = sum(found.values()) / sum(shares.values())
        assert all(abs(found[arm] - share * total) < 1 + 1e-6 for arm, share in shares.items())


def test_every_sentence_of_a_language_comes_before_any_comes_again():
    stream = mixture({"az": 1, "be": 1, "tr": 1})
    seen = np.concatenate([drawn(pool_of(stream)) for _ in range(30)])
    for start, stop in EXTENTS.values():
        times = np.bincount(seen[(seen >= start) & (seen < stop)] - start, minlength=stop - start)
        assert times.max() - times.min() <= 1


def test_a_language_does_not_repeat_itself_within_a_pool_if_a_batch_is_small_enough():
    assert len(drawn(pool_of(mixture({"be": 1, "tr": 1})))) == 100  # be has 50 sentences
    whole = mixture({"be": 1, "tr": 1}, tokens=100_000)
    assert whole.batches_per_epoch == 1
    assert next(whole).tokens > 90_000


def test_batches_of_a_mixture_keep_to_the_budget_and_have_similar_lengths():
    batches = pool_of(mixture({"az": 1, "tr": 1}, tokens=2000))
    assert len(batches) >= 60
    assert all(1800 <= batch.tokens <= 2200 for batch in batches)
    lengths = [batch.target_lengths for batch in batches]
    assert sum(of.sum() for of in lengths) / sum(len(of) * of.max() for of in lengths) > 0.8


def test_tokens_are_counted_by_language():
    batch = next(mixture(UNEQUAL))
    assert sum(batch.tokens_by_language.values()) == batch.tokens
    assert set(batch.tokens_by_language) <= set(SIZES)


OTHERS = ({"az": 1, "be": 1, "tr": 1}, UNEQUAL, {"tr": 1, "be": 2}, SIZES)


def test_new_shares_hold_from_the_next_batch_on_and_no_sentence_is_lost():
    stream = mixture({"az": 1, "tr": 1})
    seen = []
    for number in range(400):
        stream.mix(OTHERS[number % 2])
        seen.append(drawn([next(stream) for _ in range(3)]))
    stream.mix({"be": 1})
    left = [language["returned"] for language in stream.state_dict()["languages"].values()]
    assert sum(map(len, left)) > 100
    times = np.bincount(np.concatenate([*seen, *left]), minlength=8050)
    for start, stop in EXTENTS.values():
        assert times[start:stop].max() - times[start:stop].min() <= 1
    assert next(stream).tokens_by_language.keys() == {"be"}


def test_the_same_shares_again_change_nothing():
    ours, other = mixture(UNEQUAL), mixture(UNEQUAL)
    for _ in range(100):
        ours.mix({arm: 4 * share for arm, share in UNEQUAL.items()})
        assert same(next(ours), next(other))


@given(st.lists(st.tuples(st.sampled_from(OTHERS), st.integers(0, 70)), min_size=1, max_size=6), st.integers(0, 400))
@settings(max_examples=40, deadline=None)
def test_a_resumed_mixture_goes_on_as_if_nothing_had_happened(phases, cut):
    def run(stream, number, cut):
        """All batches; after ``cut`` of them another stream goes on from the state of this one."""
        for shares, batches in phases:
            stream.mix(shares)
            for _ in range(batches):
                if number == cut:
                    state = stream.state_dict()
                    stream = mixture(UNEQUAL, name="mixed")
                    stream.load_state_dict(state)
                number += 1
                yield next(stream)

    uninterrupted = run(mixture(UNEQUAL, name="mixed"), 0, None)
    resumed = run(mixture(UNEQUAL, name="mixed"), 0, cut)
    assert all(same(one, other) for one, other in zip(uninterrupted, resumed, strict=True))


def test_the_named_mixture_goes_on_from_a_state_that_knows_no_shares():
    stream, resumed = (mixture(SIZES, name="mixed") for _ in range(2))
    for _ in range(stream.batches_per_epoch + 35):
        next(stream)
    resumed.load_state_dict({"arm": "mixed", "tokens": 1000, "epoch": 1, "position": 35})
    assert stream.state_dict() == resumed.state_dict()
    assert same(next(stream), next(resumed))


def test_the_state_of_any_other_mixture_says_its_shares():
    assert mixture({"az": 1, "tr": 3}).state_dict()["shares"] == {"az": 0.25, "tr": 0.75}
    assert mixture(SIZES).state_dict()["shares"] == {arm: size / 8050 for arm, size in SIZES.items()}


def test_a_state_after_other_shares_remembers_where_each_language_was():
    """Back in proportion, the next pool still goes on where the last one ended."""
    stream = mixture(SIZES, name="mixed")
    stream.mix(UNEQUAL)
    pool_of(stream)
    stream.mix(SIZES)
    resumed = mixture(SIZES, name="mixed")
    resumed.load_state_dict(stream.state_dict())
    for one in (stream, resumed):
        one.mix(UNEQUAL)
    assert same(next(stream), next(resumed))


def test_a_skipped_batch_has_the_sizes_of_the_one_that_is_read():
    ours, other = mixture(UNEQUAL), mixture(UNEQUAL)
    for _ in range(70):
        read, skipped = next(ours), other.skip()
        assert np.array_equal(read.target_lengths, skipped.target_lengths)
        assert read.tokens_by_language == skipped.tokens_by_language


@pytest.mark.parametrize(
    ("shares", "name", "message"),
    [
        ({"fr": 1}, "a mixture", "unknown language 'fr'"),
        ({"az": -1, "tr": 2}, "a mixture", "the share of 'az' in a mixture is -1"),
        ({"az": float("nan")}, "a mixture", "the share of 'az' in a mixture is nan"),
        ({"az": 0}, "a mixture", "arm 'a mixture' has no sentences"),
        ({"az": 1}, "az", "a mixture cannot be named 'az', which is an arm"),
    ],
)
def test_a_mixture_that_makes_no_sense_is_refused(shares, name, message):
    with pytest.raises(ValueError, match=message):
        mixture(shares, name=name)


def test_a_mixture_of_batches_is_not_a_stream():
    with pytest.raises(AssertionError, match="come from the streams of those arms"):
        make_stream(STORE, "both", 1000, 1, mixture=Mixture({"az": 1, "tr": 1}))
