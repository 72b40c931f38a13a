"""Which dev sentences a teacher sees, and which English it thereby knows in every language."""

import numpy as np
import pytest

from rota.data.division import selection_part, teacher_part, text_hashes
from rota.data.store import Flat, Sentences


def dev_sets(texts_by_language):
    """A split whose targets are these texts, each a sequence of tokens; the sources do not matter."""
    texts = [text for texts in texts_by_language.values() for text in texts]
    offsets = np.cumsum([0, *map(len, texts)])
    flat = Flat(np.array([token for text in texts for token in text], dtype=np.uint16), offsets)
    ends = np.cumsum([len(texts) for texts in texts_by_language.values()]).tolist()
    ranges = {arm: (end - len(each), end) for (arm, each), end in zip(texts_by_language.items(), ends, strict=True)}
    return Sentences(flat, flat, ranges)


def multi_parallel(seed=0):
    """Eight languages, each with its own 250 of the same 310 English sentences, in an order of its own."""
    rng = np.random.default_rng(seed)
    pool = [tuple(rng.integers(3, 8000, size=rng.integers(3, 20)).tolist()) for _ in range(310)]
    return {str(arm): [pool[index] for index in rng.permutation(310)[:250]] for arm in range(8)}


def seen_elsewhere(texts, division):
    """By language, the share of its selection texts that the teacher sees in some language."""
    dev = dev_sets(texts)
    known = {texts[arm][index] for arm in texts for index in teacher_part(dev, arm, 0.5, division)}
    chosen = {arm: [texts[arm][index] for index in selection_part(dev, arm, 0.5, division)] for arm in texts}
    return {arm: sum(text in known for text in each) / len(each) for arm, each in chosen.items()}


def test_no_english_is_in_the_teachers_half_of_one_language_and_in_the_selection_half_of_another():
    texts = multi_parallel()
    assert min(seen_elsewhere(texts, "alternate").values()) > 0.95, "by position nearly all of it leaks"
    assert set(seen_elsewhere(texts, "text").values()) == {0.0}


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
def test_the_teacher_has_its_share_of_every_language(share):
    texts = multi_parallel()
    dev = dev_sets(texts)
    for arm in texts:
        teacher, selection = (part(dev, arm, share, "text").tolist() for part in (teacher_part, selection_part))
        assert sorted(teacher + selection) == list(range(250))
        # Four standard deviations of a binomial count: no more than chance.
        assert len(teacher) == pytest.approx(250 * share, abs=4 * np.sqrt(250 * share * (1 - share)))


@pytest.mark.parametrize("share", [0.001, 0.5, 0.999])
def test_two_different_texts_are_enough_for_two_parts(share):
    texts = [(5, 6, 2), (7, 2), (5, 6, 2)]
    dev = dev_sets({"az": texts})
    teacher, selection = (part(dev, "az", share, "text").tolist() for part in (teacher_part, selection_part))
    assert sorted([teacher, selection]) == [[0, 2], [1]]


@pytest.mark.parametrize("texts", [[(5, 6, 2)], [(5, 6, 2)] * 3])
def test_one_text_serves_both(texts):
    dev = dev_sets({"az": texts})
    everything = list(range(len(texts)))
    assert teacher_part(dev, "az", 0.5, "text").tolist() == everything
    assert selection_part(dev, "az", 0.5, "text").tolist() == everything


@pytest.mark.parametrize("division", ["text", "alternate"])
def test_a_share_of_one_uses_the_whole_set_for_both(division):
    dev = dev_sets({"az": [(5, 2), (6, 2), (7, 2)]})
    assert teacher_part(dev, "az", 1.0, division).tolist() == [0, 1, 2]
    assert selection_part(dev, "az", 1.0, division).tolist() == [0, 1, 2]


def test_by_position_a_quarter_of_eight_are_two():
    dev = dev_sets({"az": [(number, 2) for number in range(3, 11)], "be": [(3, 2)]})
    assert teacher_part(dev, "az", 0.25, "alternate").tolist() == [1, 5]
    assert selection_part(dev, "az", 0.25, "alternate").tolist() == [0, 2, 3, 4, 6, 7]
    assert teacher_part(dev, "be", 0.5, "alternate").tolist() == selection_part(dev, "be", 0.5, "alternate").tolist()


def test_a_hash_is_of_the_tokens_in_their_order_wherever_they_stand():
    dev = dev_sets({"az": [(5, 6), (6, 5), (5,), (5, 6, 0)], "be": [(9, 9), (5, 6)]})
    hashes = text_hashes(dev.target, 0, 6).tolist()
    assert hashes[5] == hashes[0]
    assert len(set(hashes)) == 5
    assert text_hashes(dev.target, 4, 6).tolist() == hashes[4:]


def mixed(value):
    """SplitMix64 in whole numbers of Python."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % 2**64
    return value ^ (value >> 31)


def test_a_hash_is_the_same_on_every_machine():
    # The first output of the published generator with seed 0.
    assert mixed(0) == 0xE220A8397B1DCDAF
    dev = dev_sets({"az": [(7,), (5, 60_000)]})
    expected = [mixed(mixed(mixed(0) ^ 7)), mixed((mixed(mixed(0) ^ 5) + mixed(mixed(1) ^ 60_000)) % 2**64)]
    assert text_hashes(dev.target, 0, 2).tolist() == expected
