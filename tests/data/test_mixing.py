"""How evenly the languages of a mixture are spread over its batches, and what that costs in padding."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from test_batches import flat

from rota.data.batches import make_stream
from rota.data.store import Sentences
from rota.types import Mixture

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from data_path import attention, uneven
from rota.student.pieces import pieces

SIZES = {"az": 600, "be": 300, "tr": 6000, "ru": 8000}


def store_of(means, spread=0.5, seed=0):
    """Sentences with log-normal lengths, of about so many tokens in each language."""
    rng = np.random.default_rng(seed)
    median = np.repeat([means[arm] for arm in SIZES], list(SIZES.values()))
    target = np.clip(rng.lognormal(np.log(median), spread), 2, 200).astype(int)
    source = np.clip(target * rng.lognormal(0, 0.2, len(target)), 3, 200).astype(int)
    ends = np.cumsum(list(SIZES.values())).tolist()
    ranges = {arm: (end - size, end) for (arm, size), end in zip(SIZES.items(), ends, strict=True)}
    numbers = np.arange(len(target))
    sentences = Sentences(flat(source, numbers), flat(target, numbers), ranges)
    return SimpleNamespace(languages=tuple(SIZES), arms=tuple(SIZES), sizes=SIZES, split=lambda name: sentences)


ALIKE = store_of(dict.fromkeys(SIZES, 18))
UNLIKE = store_of({"az": 25, "be": 25, "tr": 8, "ru": 12})  # small corpora of talks, large ones of short sentences


def batches_of(store, mixing, tokens=4000):
    """Sentence indices of the batches of an epoch, and the batches."""
    stream = make_stream(store, "mixed", tokens, seed=1, mixture=Mixture(store.sizes, "sentence"), mixing=mixing)
    parts = [stream.sentences_at(position) for position in range(stream.batches_per_epoch)]
    return parts, [store.split("train").batch("mixed", part) for part in parts]


def test_every_batch_has_every_language_though_one_has_long_sentences_and_another_short_ones():
    train = UNLIKE.split("train")
    # 1 is the variance of random sentences. Sorted by length, a batch is of the languages with sentences that long.
    assert uneven(train, batches_of(UNLIKE, "by-length")[0]) > 10
    assert uneven(train, batches_of(UNLIKE, "even")[0]) < 1


def test_random_sentences_have_the_spread_that_is_called_one():
    rng = np.random.default_rng(0)
    parts = np.array_split(rng.permutation(sum(SIZES.values())), 60)
    assert uneven(UNLIKE.split("train"), parts) == pytest.approx(1, abs=0.25)


def test_where_languages_have_the_same_lengths_padding_stays_as_small():
    before, after = (attention(batches_of(ALIKE, mixing)[1]) for mixing in ("by-length", "even"))
    unsorted = [ALIKE.split("train").batch("mixed", part) for part in np.array_split(np.arange(14_900), 70)]
    assert before < 1.4
    assert after < 1.1 * before
    assert attention(unsorted) > 4


def test_where_they_do_not_it_is_far_from_that_of_random_sentences():
    def in_pieces(batches):
        """As the student has it on a CPU, where the pieces of a batch have similar lengths."""
        return attention([piece for batch in batches for _, _, piece in pieces(batch, 1_500)])

    parts = np.array_split(np.random.default_rng(0).permutation(14_900), 60)
    random = in_pieces([UNLIKE.split("train").batch("mixed", part) for part in parts])
    # In a batch with sentences of 8 and of 25 tokens some attention is on padding, whatever their order: 2.1 and 5.9.
    assert in_pieces(batches_of(UNLIKE, "even")[1]) < 2.3 < 5 < random


@pytest.mark.parametrize("mixing", ["even", "by-length"])
def test_every_sentence_comes_once_and_batches_keep_their_budget(mixing):
    parts, batches = batches_of(UNLIKE, mixing)
    assert sorted(np.concatenate(parts).tolist()) == list(range(14_900))
    assert all(3800 <= batch.tokens <= 4200 for batch in batches)


def test_a_mixture_with_other_shares_is_mixed_within_its_batches_too():
    stream = make_stream(UNLIKE, "half", 4000, seed=1, mixture=Mixture({"az": 0.5, "ru": 0.5}, "sentence"))
    train = UNLIKE.split("train")
    for position in range(stream.batches_per_epoch):
        counts = np.bincount(train.languages_of(stream.sentences_at(position)), minlength=4)
        assert counts[0] / counts.sum() == pytest.approx(0.5, abs=0.1)


def test_a_language_with_few_sentences_has_them_in_other_batches_in_every_epoch():
    stream = make_stream(UNLIKE, "mixed", 4000, seed=1, mixture=Mixture(UNLIKE.sizes, "sentence"))
    train, found = UNLIKE.split("train"), []
    for _ in range(2):
        parts = [stream.sentences_at(position) for position in range(stream.batches_per_epoch)]
        found.append([int((train.languages_of(part) == 1).sum()) for part in parts])
        for _ in range(len(parts) + 1):
            next(stream)
    assert sum(found[0]) == sum(found[1]) == 300
    assert found[0] != found[1]
