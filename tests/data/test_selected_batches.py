"""Batches of the easiest sentences of each language: which ones they are, and that the share may change at any time."""

from __future__ import annotations

from collections import Counter
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_batches import STORE, drawn, epoch_of, flat, stream_of
from test_mixtures import EXTENTS, UNEQUAL, mixture, same

from rota.data.batches import LanguageStream
from rota.data.selection import COLUMNS, Ranks, rarity
from rota.data.store import Flat, Sentences
from rota.types import Selection

TRAIN = STORE.split("train")
LENGTHS = TRAIN.target.lengths(np.arange(8050))


def selected(arm="az", tokens=1000, seed=1, share=None, by="length"):
    stream = stream_of(arm, tokens, seed)
    if share is not None:
        stream.select(Selection(by, share))
    return stream


def test_ranks_are_those_within_the_language():
    side = flat([5, 2, 9, 2, 40, 30], np.arange(6))
    ranks = Ranks(Sentences(side, side, {"az": (0, 4), "be": (4, 6)}))
    assert ranks["length"].tolist() == [0.5, 0, 0.75, 0.25, 0.5, 0]
    assert ranks["length"] is ranks["length"]


def test_rarity_is_the_mean_surprise_of_the_source_subwords():
    # Tag, subwords, end. az: 5 five times, 6 once, 7 twice, so of 8. be has its own counts: 6 is all it has.
    source = [[1, 5, 5, 5, 2], [1, 5, 6, 2], [1, 7, 5, 7, 2], [3, 6, 2]]
    tokens, ends = np.concatenate(source), np.cumsum([0, *map(len, source)])
    sentences = Sentences(Flat(tokens, ends), Flat(tokens, ends), {"az": (0, 3), "be": (3, 4)})
    five, six, seven = -np.log(5 / 8), -np.log(1 / 8), -np.log(2 / 8)
    expected = [five, (five + six) / 2, (2 * seven + five) / 3, 0]
    assert rarity(sentences) == pytest.approx(expected)


def test_rarity_in_chunks_is_rarity_at_once(monkeypatch):
    at_once = rarity(TRAIN)
    monkeypatch.setattr("rota.data.selection._CHUNK", 7)
    assert rarity(TRAIN) == pytest.approx(at_once)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.3, 0.7, 0.999])
@pytest.mark.parametrize("by", COLUMNS)
def test_a_share_is_rounded_up_to_whole_sentences(by, share):
    ranks = Ranks(TRAIN)
    for start, stop in EXTENTS.values():
        selected = ranks.selected(Selection(by, share), np.arange(start, stop))
        assert len(selected) == int(np.ceil(round(share * (stop - start), 6)))
        scores = COLUMNS[by](TRAIN)[start:stop]
        others = np.delete(scores, selected)
        assert scores[selected].max() <= others.min(initial=np.inf)


def test_only_the_easiest_come_and_each_of_them_once_before_any_comes_again():
    stream = selected(share=0.3)
    easiest = set(np.argsort(LENGTHS[:3000], kind="stable")[:900].tolist())
    seen = Counter()
    while sum(seen.values()) < 2 * 900:
        seen.update(drawn([next(stream)]).tolist())
    assert set(seen) == easiest
    assert max(seen.values()) - min(seen.values()) <= 1


@pytest.mark.parametrize("arm", ["tr", "mixed"])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.62, 0.98])
def test_selected_batches_keep_to_the_budget(arm, share):
    stream = selected(arm, tokens=1000, share=share)
    for _ in range(100):
        assert 900 <= next(stream).tokens <= 1100


def test_a_selection_smaller_than_the_budget_is_a_small_batch():
    stream = selected("be", tokens=100_000, share=0.1)
    sizes = [next(stream).sentences for _ in range(5)]
    assert sizes == [5, 5, 5, 5, 5]


def test_a_small_selection_goes_round_evenly():
    stream = selected("be", tokens=100_000, share=0.1)
    next(stream)
    stream.select(Selection("length", 0.3))  # from the middle of an epoch on, 15 sentences
    seen = Counter(index for _ in range(40) for index in drawn([next(stream)]).tolist())
    assert len(seen) == 15
    assert max(seen.values()) - min(seen.values()) <= 1


def test_a_selection_of_one_sentence_is_that_sentence():
    stream = selected("be", tokens=300, share=1e-9)
    easiest = 3000 + np.argmin(LENGTHS[3000:3050])
    assert all(set(drawn([next(stream)])) == {easiest} for _ in range(30))


def test_a_sentence_longer_than_the_budget_is_alone_in_a_selection_too():
    side = flat([3, 50, 4, 60, 70], np.arange(5))
    stream = LanguageStream(Sentences(side, side, {"az": (0, 5)}), "az", np.arange(5), tokens=10, seed=0)
    stream.select(Selection("length", 0.8))
    found = Counter(tuple(sorted(drawn([next(stream)]).tolist())) for _ in range(30))
    assert found[(1,)] > 5
    assert found[(3,)] > 5
    assert not any(4 in batch for batch in found)


@pytest.mark.parametrize("arm", ["az", "mixed"])
@pytest.mark.parametrize("by", COLUMNS)
def test_all_sentences_selected_are_the_plain_stream(arm, by):
    plain, whole = selected(arm), selected(arm, share=1, by=by)
    for _ in range(200):
        assert same(next(plain), next(whole))
        assert plain.state_dict() == whole.state_dict()


def test_after_a_selection_the_order_goes_on_where_it_was():
    stream, plain = selected(share=0.5), selected()
    for _ in range(10):
        next(stream)
    state = stream.state_dict()
    assert state["position"] > 20  # the easier half is short: it has less than half of the tokens
    assert state["offset"] > 0
    stream.select(None)
    next(stream)  # the rest of the batch that was begun
    for _ in range(state["position"] + 1):
        next(plain)
    for _ in range(200):
        assert same(next(stream), next(plain))


def test_a_share_that_grows_lets_harder_sentences_in_at_once():
    stream = selected("tr")
    ranks = Ranks(TRAIN)["length"]
    for step in range(1, 101):
        stream.select(Selection("length", step / 100))
        hardest = ranks[drawn([next(stream)])].max()
        assert hardest < step / 100


def until_the_next_epoch(stream, shares):
    """Sentences of the present epoch, in batches whose shares take turns."""
    for number in count():
        stream.select(Selection("length", shares[number % len(shares)]))
        batch = next(stream)
        if stream.state_dict()["epoch"]:
            return
        yield from drawn([batch]).tolist()


@pytest.mark.parametrize("shares", [(0.3, 0.99), (0.5, 0.7, 0.9)])
def test_no_sentence_comes_twice_in_an_epoch_however_the_share_changes(shares):
    seen = list(until_the_next_epoch(selected("tr"), shares))
    assert len(set(seen)) == len(seen) > 500


def test_nor_where_a_batch_of_the_order_is_used_in_three_parts():
    side = flat([1] * 220, np.arange(220))  # two batches of 110 tokens, a tenth above the budget
    stream = LanguageStream(Sentences(side, side, {"az": (0, 220)}), "az", np.arange(220), tokens=100, seed=1)
    stream.load_state_dict({"arm": "az", "tokens": 100, "epoch": 0, "position": 0, "offset": 3})
    stream.select(Selection("length", 0.999))
    first = drawn([next(stream)])
    assert stream.state_dict()["offset"] == 103
    assert len({*first.tolist(), *drawn([next(stream)]).tolist()}) == 200


SHARES = st.sampled_from([None, 0.1, 0.5, 0.9, 1.0])


@pytest.mark.parametrize("arm", ["az", "mixed", "a mixture"])
@given(phases=st.lists(st.tuples(SHARES, st.integers(0, 40)), min_size=1, max_size=5), cut=st.integers(0, 150))
@settings(max_examples=15, deadline=None)
def test_a_resumed_selection_goes_on_as_if_nothing_had_happened(arm, phases, cut):
    def start():
        return mixture(UNEQUAL) if arm == "a mixture" else selected(arm)

    def run(stream, number, cut):
        for share, batches in phases:
            stream.select(None if share is None else Selection("length", share))
            for _ in range(batches):
                if number == cut:
                    state = stream.state_dict()
                    stream = start()
                    stream.load_state_dict(state)
                number += 1
                yield next(stream)

    assert all(same(*pair) for pair in zip(run(start(), 0, None), run(start(), 0, cut), strict=True))


def test_a_selection_leaves_the_shares_of_a_mixture_as_they_are():
    stream = mixture({"az": 1, "tr": 1})
    stream.select(Selection("length", 0.3))
    indices = drawn([next(stream) for _ in range(300)])
    share = (indices < 3000).mean()
    assert abs(share - 0.5) < 4 * np.sqrt(0.25 / len(indices))


def test_a_skipped_batch_has_the_sizes_of_the_one_that_is_read():
    ours, other = selected(share=0.4), selected(share=0.4)
    for _ in range(70):
        assert np.array_equal(next(ours).target_lengths, other.skip().target_lengths)


def test_one_object_of_ranks_serves_several_streams(monkeypatch):
    calls = []
    monkeypatch.setitem(COLUMNS, "length", lambda sentences: calls.append(1) or LENGTHS.astype(float))
    ranks = Ranks(TRAIN)
    for arm in ("az", "tr", "mixed"):
        stream = stream_of(arm, 1000, 1, ranks=ranks)
        stream.select(Selection("length", 0.5))
        next(stream)
    assert len(calls) == 1


@pytest.mark.parametrize("share", [0, -0.1, 1.1, float("nan")])
def test_a_share_out_of_range_is_refused(share):
    with pytest.raises(ValueError, match="the share must be above 0, at most 1"):
        selected(share=share)


def test_an_unknown_column_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown column 'beauty' to select sentences by; known: length, rarity"):
        selected(share=0.5, by="beauty")


def test_a_stream_without_any_selected_sentence_says_so():
    hardest = np.argsort(LENGTHS[:3000], kind="stable")[-10:]
    stream = LanguageStream(TRAIN, "the hardest", hardest, tokens=1000, seed=1)
    with pytest.raises(ValueError, match=r"no sentence of 'the hardest' is among the easiest 0\.5 by length"):
        stream.select(Selection("length", 0.5))


def test_an_epoch_after_a_selection_is_whole_again():
    stream = selected("be", tokens=300, share=0.3)
    for _ in range(4):
        next(stream)
    stream.select(None)
    while stream.state_dict()["position"] < stream.batches_per_epoch:
        next(stream)
    next(stream)
    resumed = selected("be", tokens=300)
    resumed.load_state_dict(stream.state_dict() | {"position": 0})
    assert sorted(drawn(epoch_of(resumed))) == list(range(3000, 3050))
