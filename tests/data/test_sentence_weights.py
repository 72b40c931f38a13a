"""Sentences by rank: at least so many of a language, weights of the loss, columns that are measured during training."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_batches import STORE, flat, stream_of
from test_mixtures import EXTENTS

from rota.data.batches import make_stream
from rota.data.selection import Ranks, rarity, rarity_sum
from rota.data.store import Flat, Sentences
from rota.types import Emphasis, Scoring, Selection

TRAIN = STORE.split("train")
SIZES = {arm: stop - start for arm, (start, stop) in EXTENTS.items()}


@given(st.floats(0.0001, 1), st.integers(0, 10_000))
def test_the_selected_are_counted_without_looking_at_them(share, least):
    selection = Selection("length", share, least)
    for arm, (start, stop) in EXTENTS.items():
        assert RANKS.count(selection, arm) == len(RANKS.selected(selection, np.arange(start, stop)))


RANKS = Ranks(TRAIN)


@pytest.mark.parametrize("arm", EXTENTS)
def test_there_are_at_least_so_many_sentences_of_each_language(arm):
    start, stop = EXTENTS[arm]
    chosen = RANKS.selected(Selection("length", 0.001, 40), np.arange(start, stop))
    assert len(chosen) == min(40, SIZES[arm])
    lengths = TRAIN.target.lengths(np.arange(start, stop))
    assert sorted(lengths[chosen]) == sorted(lengths)[: len(chosen)]


def test_a_mixture_has_at_least_so_many_of_each_of_its_languages():
    stream = stream_of("mixed", 100_000, 1)
    stream.select(Selection("length", 0.0001, 15))
    assert next(stream).sentences == 15 * len(EXTENTS)


def test_more_than_a_language_has_is_all_of_it():
    arm = min(SIZES, key=SIZES.get)
    stream = make_stream(STORE, arm, 10**9, 1)
    stream.select(Selection("length", 0.001, 10**6))
    assert next(stream).sentences == SIZES[arm]


def test_rarity_summed_is_rarity_times_the_subwords():
    source = [[1, 5, 5, 5, 2], [1, 5, 6, 2]]
    tokens, ends = np.concatenate(source), np.cumsum([0, *map(len, source)])
    sentences = Sentences(Flat(tokens, ends), Flat(tokens, ends), {"az": (0, 2)})
    five, six = -np.log(4 / 5), -np.log(1 / 5)
    assert rarity_sum(sentences) == pytest.approx([3 * five, five + six])
    assert rarity(sentences) == pytest.approx([five, (five + six) / 2])


def test_weights_are_powers_of_the_rank_over_the_competence():
    side = flat([5, 2, 9, 2, 40, 30], np.arange(6))
    ranks = Ranks(Sentences(side, side, {"az": (0, 4), "be": (4, 6)}))
    # Of four: ranks 3, 1, 4 and 2 quarters; of two: the longer has 1, the other 0.5. Competence 0.5, square roots.
    found = ranks.weights(Emphasis("length", 0.5, 0.5), np.array([0, 1, 2, 3, 4, 5]))
    assert found == pytest.approx(np.sqrt([1.5, 0.5, 2, 1, 2, 1]))
    assert found.dtype == np.float32


def test_batches_have_weights_as_long_as_there_is_an_emphasis():
    stream, plain = make_stream(STORE, "az", 1_000, 1), make_stream(STORE, "az", 1_000, 1)
    stream.emphasise(Emphasis("length", 1.0, 1.0))
    batch, same = next(stream), next(plain)
    assert np.array_equal(batch.target, same.target)
    assert same.weights is None
    lengths = TRAIN.target.lengths(np.arange(*EXTENTS["az"]))
    # The hardest sentence of a length has as many at or below it as there are in the corpus.
    highest = {length: np.mean(lengths <= length) for length in set(batch.target_lengths.tolist())}
    lowest = {length: np.mean(lengths < length) for length in highest}
    for length, weight in zip(batch.target_lengths.tolist(), batch.weights.tolist(), strict=True):
        assert lowest[length] < weight <= highest[length] + 1e-6
    stream.emphasise(None)
    assert next(stream).weights is None


def test_an_emphasis_is_not_part_of_the_state():
    stream, plain = make_stream(STORE, "az", 1_000, 1), make_stream(STORE, "az", 1_000, 1)
    stream.emphasise(Emphasis("length", 1.0, 1.0))
    next(stream), next(plain)
    assert stream.state_dict() == plain.state_dict()


def test_a_measured_column_replaces_the_one_before():
    ranks = Ranks(TRAIN)
    with pytest.raises(ValueError, match="the column 'norm' has not been measured yet"):
        ranks["norm"]
    ranks.put("norm", np.arange(len(TRAIN), dtype=np.float32))
    start, stop = EXTENTS["az"]
    assert ranks.selected(Selection("norm", 3 / (stop - start)), np.arange(start, stop)).tolist() == [0, 1, 2]
    ranks.put("norm", -np.arange(len(TRAIN), dtype=np.float32))
    assert ranks.selected(Selection("norm", 2 / (stop - start)), np.arange(start, stop)).tolist() == [
        stop - start - 2,
        stop - start - 1,
    ]
    with pytest.raises(ValueError, match="unknown column 'beauty' .*; known: length, rarity, rarity-sum, norm, loss"):
        ranks.put("beauty", np.zeros(len(TRAIN)))


def test_the_least_number_is_saved_only_where_there_is_one():
    stream = make_stream(STORE, "az", 1_000, 1)
    stream.select(Selection("length", 0.5))
    assert stream.state_dict()["selection"] == {"by": "length", "share": 0.5}
    stream.select(Selection("length", 0.5, 30))
    state = stream.state_dict()
    assert state["selection"] == {"by": "length", "share": 0.5, "least": 30}
    other = make_stream(STORE, "az", 1_000, 1)
    other.load_state_dict(state)
    assert np.array_equal(next(other).target, next(stream).target)


def test_the_best_candidates_are_chosen_and_the_others_wait_for_the_next_epoch():
    stream, plain = make_stream(STORE, "az", 1_000, 1), make_stream(STORE, "az", 1_000, 1)
    stream.score(Scoring({"length": -1.0}, 0.25))
    batch = next(stream)
    candidates = [next(plain) for _ in range(stream.state_dict()["position"])]
    # Four budgets of candidates, batches being as near the budget as they can.
    assert 3 <= len(candidates) <= 5
    lengths = np.sort(np.concatenate([each.target_lengths for each in candidates]))
    assert np.sort(batch.target_lengths).tolist() == lengths[: batch.sentences].tolist()
    assert batch.tokens == pytest.approx(1_000, abs=int(max(batch.target_lengths)))
    stream.score(None)
    assert np.array_equal(next(stream).target, next(plain).target)


def test_scores_add_up_over_columns():
    side = flat([5, 2, 9, 2, 40, 30], np.arange(6))
    ranks = Ranks(Sentences(side, side, {"az": (0, 4), "be": (4, 6)}))
    ranks.put("loss", np.array([1.0, 2, 3, 4, 0, 9], dtype=np.float32))
    found = ranks.scores(Scoring({"length": 2.0, "loss": -1.0}, 0.5), np.array([0, 3, 5]))
    # Ranks of length 0.5, 0.25 and 0; of loss 0, 0.75 and 0.5.
    assert found == pytest.approx([2 * 0 + 0.5, 2 * -0.25 - 0.25, 2 * -0.5 - 0])


def test_a_corpus_smaller_than_the_candidates_gives_its_best_share():
    arm = min(SIZES, key=SIZES.get)
    start, stop = EXTENTS[arm]
    stream = make_stream(STORE, arm, 10**7, 1)
    stream.score(Scoring({"length": 1.0}, 0.5))
    batch = next(stream)
    total = int(TRAIN.target.lengths(np.arange(start, stop)).sum())
    assert batch.tokens == pytest.approx(total / 2, abs=int(max(batch.target_lengths)))


def test_a_scoring_without_a_share_is_refused():
    with pytest.raises(ValueError, match=r"a scoring keeps 0 of the candidates; the share must be above 0, at most 1"):
        make_stream(STORE, "az", 1_000, 1).score(Scoring({"length": 1.0}, 0))
