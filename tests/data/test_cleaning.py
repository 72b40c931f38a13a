"""Cleaning: every pair is kept or counted under one reason."""

from collections.abc import Set

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rota.data.preparation.cleaning import Cleaner, CleaningConfig


def clean(pairs, **limits):
    cleaner = Cleaner(CleaningConfig.model_validate(limits))
    kept = list(cleaner.clean_train(pairs))
    return kept, {reason: count for reason, count in cleaner.counts.items() if count}


def guard_of(*texts, **limits):
    """What the dev and test sets with this English guard."""
    guard = set()
    for english in texts:
        cleaner = Cleaner(CleaningConfig.model_validate(limits))
        list(cleaner.clean_held_out([("x", english)]))
        guard |= cleaner.held_out
    return guard


def test_a_pair_without_one_side_is_dropped():
    kept, counts = clean([("bir", "one"), ("", "two"), ("üç", "")])
    assert kept == [("bir", "one")]
    assert counts == {"kept": 1, "empty side": 2}


def test_the_word_limit_holds_for_both_sides():
    kept, counts = clean([("a b c", "x y z"), ("a b c d", "x y z"), ("a b c", "x y z w")], max_words=3)
    assert kept == [("a b c", "x y z")]
    assert counts == {"kept": 1, "too long": 2}


def test_a_sentence_without_spaces_is_limited_by_its_characters():
    kept, counts = clean([("字" * 10, "w" * 10), ("字" * 11, "w" * 10)], max_characters=10)
    assert kept == [("字" * 10, "w" * 10)]
    assert counts == {"kept": 1, "too long": 1}


def test_the_ratio_counts_only_above_twenty_characters():
    short, good, bad = ("ab", "x" * 20), ("a" * 7, "x" * 21), ("a" * 7, "x" * 22)
    kept, counts = clean([short, good, bad, bad[::-1]], max_ratio=3)
    assert kept == [short, good]
    assert counts == {"kept": 2, "length ratio": 2}


def test_the_first_of_equal_pairs_is_kept():
    pairs = [("bir", "one"), ("bir", "uno"), ("bir", "one"), ("Bir", "one")]
    assert clean(pairs) == ([pairs[0], pairs[1], pairs[3]], {"kept": 3, "duplicate pair": 1})
    assert clean(pairs, drop_duplicates=False) == (pairs, {"kept": 4})


def test_the_same_pair_in_another_text_is_not_a_duplicate():
    cleaner = Cleaner(CleaningConfig())
    for _ in range(2):
        assert list(cleaner.clean_train([("ev", "house")])) == [("ev", "house")]


def test_english_of_any_dev_or_test_set_is_kept_out_of_all_training_text():
    cleaner = Cleaner(CleaningConfig(), guard_of("This is the very one.", "Four words are short"))
    source = "bu həmin cümlədir"
    pairs = [(source, "this IS  the very one."), (source, "Four words are short"), (source, "This is the very one")]
    assert list(cleaner.clean_train(pairs)) == pairs[1:]
    assert cleaner.counts["English in dev or test"] == 1


def test_what_other_cleaners_guard_is_looked_up_and_never_copied():
    """A copy for each training text would take time that grows with the square of the languages."""

    class Guard(Set):
        def __init__(self, digests):
            self._digests = frozenset(digests)

        def __contains__(self, digest):
            return digest in self._digests

        def __iter__(self):
            raise AssertionError("the guard was copied")

        def __len__(self):
            return len(self._digests)

    cleaner = Cleaner(CleaningConfig(), Guard(guard_of("This is the very one.")))
    pairs = [("bu həmin cümlədir", "This is the very one."), ("bu başqasıdır", "This is quite another one.")]
    assert list(cleaner.clean_train(pairs)) == pairs[1:]


def test_the_leak_guard_begins_at_the_words_it_is_told():
    cleaner = Cleaner(CleaningConfig(), guard_of("two words", "one", leak_words=2))
    assert list(cleaner.clean_train([("a", "Two words"), ("b", "one")])) == [("b", "one")]


def test_held_out_sets_stay_whole_except_for_empty_sides():
    cleaner = Cleaner(CleaningConfig(max_words=1))
    pairs = [("a b", "x y"), ("a b", "x y"), ("", "z"), ("c", "")]
    assert list(cleaner.clean_held_out(pairs)) == pairs[:2]
    assert cleaner.counts == {"kept": 2, "empty side": 2}


def test_limits_below_one_are_refused():
    for limit in ("max_words", "max_characters", "max_ratio", "leak_words"):
        with pytest.raises(ValidationError):
            CleaningConfig.model_validate({limit: 0})


words = st.lists(st.sampled_from(["a", "bb", "ccc", "dddd", "eeeeeeeeeeeeeeeeeeeeeeeee"]), max_size=7).map(" ".join)


@given(train=st.lists(st.tuples(words, words)), test=st.lists(st.tuples(words, words)))
def test_every_pair_is_counted_once_and_no_long_test_sentence_gets_through(train, test):
    held_out = Cleaner(CleaningConfig(max_words=6))
    kept_test = list(held_out.clean_held_out([("a", "b"), *test]))
    cleaner = Cleaner(CleaningConfig(max_words=6), held_out.held_out)
    kept = list(cleaner.clean_train([("a", "b"), *train]))
    assert sum(cleaner.counts.values()) == 1 + len(train)
    assert sum(held_out.counts.values()) == 1 + len(test)
    assert cleaner.counts["kept"] == len(kept) == len(set(kept))
    assert not {english for _, english in kept} & {english for _, english in kept_test if len(english.split()) >= 5}
