from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from rota.data.batches import LanguageStream, make_stream
from rota.data.order import cut
from rota.data.store import Flat, Sentences
from rota.types import Mixture


def flat(lengths, tokens) -> Flat:
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Flat(np.repeat(tokens, lengths).astype(np.uint16), offsets)


def sentences_like_ted(sizes, seed=0, longest=200) -> Sentences:
    """Lengths as of TED talks, a few much longer; every token of sentence i is i, so that batches can be read."""
    rng = np.random.default_rng(seed)
    count = sum(sizes.values())
    target = np.clip(rng.lognormal(3, 0.6, count), 2, longest).astype(int)
    source = np.clip(target * rng.lognormal(0, 0.2, count), 3, longest).astype(int)
    ends = np.cumsum(list(sizes.values())).tolist()
    ranges = {arm: (end - size, end) for (arm, size), end in zip(sizes.items(), ends, strict=True)}
    return Sentences(flat(source, np.arange(count)), flat(target, np.arange(count)), ranges)


def store_of(sizes):
    sentences = sentences_like_ted(sizes)
    return SimpleNamespace(languages=tuple(sizes), arms=tuple(sizes), sizes=sizes, split=lambda name: sentences)


STORE = store_of({"az": 3000, "be": 50, "tr": 5000})


def pooled(*arms):
    """The mixture of these arms, by default all of STORE, in proportion to their sizes."""
    return Mixture({arm: STORE.sizes[arm] for arm in arms or STORE.arms}, "sentence")


def stream_of(arm, tokens, seed, **more):
    """Of an arm, or of all of them under the name ``mixed``."""
    return make_stream(STORE, arm, tokens, seed, mixture=pooled() if arm == "mixed" else None, **more)


def epoch_of(stream):
    return [next(stream) for _ in range(stream.batches_per_epoch)]


def drawn(batches):
    """Sentence indices, read from the tokens."""
    return np.concatenate([batch.target[np.cumsum(batch.target_lengths) - 1] for batch in batches])


@pytest.mark.parametrize(
    ("arm", "mixture", "expected"),
    [
        ("az", None, range(3000)),
        ("be", None, range(3000, 3050)),
        ("mixed", pooled(), range(8050)),
        ("mixed-high-resource", pooled("tr"), range(3050, 8050)),
        ("the small ones", pooled("az", "be"), range(3050)),
    ],
)
def test_every_sentence_comes_once_in_every_epoch(arm, mixture, expected):
    stream = make_stream(STORE, arm, 1000, seed=1, mixture=mixture)
    for epoch in range(3):
        batches = epoch_of(stream)
        assert stream.state_dict()["epoch"] == epoch
        assert sorted(drawn(batches)) == list(expected)


def test_source_and_target_of_a_sentence_stay_together():
    batch = next(stream_of("mixed", 1000, seed=1))
    assert np.array_equal(
        batch.source[np.cumsum(batch.source_lengths) - 1], batch.target[np.cumsum(batch.target_lengths) - 1]
    )


@pytest.mark.parametrize("arm", ["az", "tr", "mixed"])
def test_every_batch_is_within_five_per_cent_of_the_budget_even_the_last(arm):
    for batch in epoch_of(stream_of(arm, 4000, seed=3)):
        assert 3800 <= batch.tokens <= 4200


def test_a_corpus_smaller_than_the_budget_is_one_batch():
    stream = make_stream(STORE, "be", 100_000, seed=1)
    assert stream.batches_per_epoch == 1
    assert next(stream).sentences == 50
    assert next(stream).sentences == 50


def test_batches_are_cut_where_the_middle_of_a_sentence_falls():
    # 12 tokens, budget 4: three batches of 4. Middles at 1.5, 4, 6, 8, 10.5; thirds at 4 and 8, which open the next.
    assert cut(np.array([3, 2, 2, 2, 3]), 4).tolist() == [0, 1, 3, 5]


def test_the_remainder_is_spread_over_all_batches():
    # 26 tokens at a budget of 10 are round(2.6) = 3 batches, not two of 10 and one of 6.
    bounds = cut(np.ones(26, dtype=int), 10)
    assert np.diff(bounds).tolist() == [9, 8, 9]


@pytest.mark.parametrize(
    ("total", "batches"),
    [
        (4, [4]),
        (11, [11]),  # a tenth above the budget is allowed
        (12, [6, 6]),  # a fifth is not
        (14, [7, 7]),
        (22, [11, 11]),
        (24, [8, 8, 8]),  # round(2.4) = 2 would be batches of 12
        (44, [11, 11, 11, 11]),
        (45, [9, 9, 9, 9, 9]),  # round(4.5) = 4 would be batches of 11.25
    ],
)
def test_no_batch_is_more_than_a_tenth_above_the_budget(total, batches):
    assert np.diff(cut(np.ones(total, dtype=int), 10)).tolist() == batches


def test_a_sentence_longer_than_the_budget_is_alone_and_no_batch_is_empty():
    lengths = np.array([5, 5, 95, 5, 5])
    bounds = cut(lengths, 10)
    assert bounds.tolist() == [0, 2, 3, 5]


def test_sentences_of_a_batch_have_similar_lengths():
    batches = epoch_of(make_stream(STORE, "tr", 4000, seed=1))
    for side in ("target_lengths", "source_lengths"):
        lengths = [getattr(batch, side) for batch in batches]
        positions = sum(len(of) * of.max() for of in lengths)
        assert sum(of.sum() for of in lengths) / positions > 0.8  # sorting by one side alone leaves the other at 0.65


def test_a_batch_across_two_windows_has_similar_lengths_too():
    side = flat(np.random.default_rng(0).integers(2, 60, 10_000), np.arange(10_000))
    stream = LanguageStream(Sentences(side, side, {"az": (0, 10_000)}), "az", np.arange(10_000), tokens=300, seed=0)
    assert stream.batches_per_epoch > 10 * 64
    worst = max(np.ptp(batch.target_lengths) for batch in epoch_of(stream))
    assert worst <= 15  # a window that began anew would put a sentence of 2 tokens beside one of 59


def test_batches_of_an_epoch_come_in_mixed_lengths():
    means = [batch.target_lengths.mean() for batch in epoch_of(make_stream(STORE, "tr", 2000, seed=1))]
    assert 40 < len(means) < 64  # one window: unshuffled, the lengths would only rise
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3


def test_epochs_seeds_and_arms_have_different_orders():
    stream = make_stream(STORE, "az", 1000, seed=1)
    first, second = drawn(epoch_of(stream)), drawn(epoch_of(stream))
    other_seed = drawn(epoch_of(make_stream(STORE, "az", 1000, seed=2)))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other_seed)
    twin = LanguageStream(STORE.split("train"), "twin", np.arange(3000), tokens=1000, seed=1)
    assert not np.array_equal(first, drawn(epoch_of(twin)))


def test_the_same_seed_gives_the_same_order_in_another_process():
    script = (
        f"import sys; sys.path.insert(0, {str(__file__).rsplit('/', 1)[0]!r})\n"
        "from test_batches import *\nprint(next(make_stream(STORE, 'az', 1000, seed=1)).target.sum())"
    )
    there = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert int(there) == next(make_stream(STORE, "az", 1000, seed=1)).target.sum()


@pytest.mark.parametrize("taken", [0, 1, 7, 65, 66, 200])
def test_a_resumed_stream_goes_on_as_if_nothing_had_happened(taken):
    stream = make_stream(STORE, "az", 1000, seed=5)
    for _ in range(taken):
        next(stream)
    resumed = make_stream(STORE, "az", 1000, seed=5)
    resumed.load_state_dict(stream.state_dict())
    for _ in range(80):
        assert np.array_equal(next(resumed).target, next(stream).target)


def test_the_state_is_the_place_and_what_it_is_a_place_in():
    stream = make_stream(STORE, "be", 100_000, seed=5)
    for _ in range(3):
        next(stream)
    assert stream.state_dict() == {"arm": "be", "tokens": 100_000, "epoch": 2, "position": 1}


@pytest.mark.parametrize(("arm", "tokens", "name"), [("tr", 1000, "arm 'az'"), ("az", 500, "tokens 1000")])
def test_the_state_of_another_stream_is_refused(arm, tokens, name):
    state = make_stream(STORE, "az", 1000, seed=1).state_dict()
    with pytest.raises(ValueError, match=name):
        make_stream(STORE, arm, tokens, seed=1).load_state_dict(state)


def test_a_mixture_counts_the_tokens_of_each_language():
    batches = epoch_of(stream_of("mixed", 4000, seed=1))
    tokens = {arm: sum(batch.tokens_by_language.get(arm, 0) for batch in batches) for arm in STORE.languages}
    offsets = STORE.split("train").target.offsets
    assert tokens == {
        "az": offsets[3000],
        "be": offsets[3050] - offsets[3000],
        "tr": offsets[8050] - offsets[3050],
    }


def test_an_unknown_arm_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match="unknown arm 'fr'; the data have az, be, tr$"):
        make_stream(STORE, "fr", 1000, seed=1)
    with pytest.raises(ValueError, match="unknown arm 'mixed'; the data have az, be, tr$"):
        make_stream(STORE, "mixed", 1000, seed=1)


def test_a_mixture_of_no_language_is_refused():
    with pytest.raises(ValueError, match="'nothing' has no sentences"):
        make_stream(STORE, "nothing", 1000, seed=1, mixture=Mixture({}, "sentence"))


def test_a_budget_of_nothing_is_refused():
    with pytest.raises(ValueError, match="batch of 0 tokens"):
        make_stream(STORE, "az", 0, seed=1)
