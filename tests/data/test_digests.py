"""A set of 64-bit numbers that says which ones are new."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rota.data.preparation.digests import DigestSet, digests_of, pack, unpack


def add(numbers, *values):
    return numbers.add(np.array(values, dtype=np.uint64)).tolist()


def test_a_number_is_new_once_within_a_batch_and_between_batches():
    numbers = DigestSet()
    assert add(numbers, 7, 8, 7) == [True, True, False]
    assert add(numbers, 9, 8) == [True, False]
    assert len(numbers) == 3


def test_numbers_that_want_the_same_slot_all_get_one():
    numbers = DigestSet()
    assert add(numbers, *(5 + 4096 * turn for turn in range(10))) == [True] * 10  # the table has 4,096 slots
    assert add(numbers, 5 + 4096 * 9, 5, 6) == [False, False, True]


def test_nothing_can_be_added():
    assert add(DigestSet()) == []


def test_a_table_that_grew_remembers_what_it_knew():
    numbers = DigestSet()
    values = np.random.default_rng(1).integers(1, 2**64, size=50_000, dtype=np.uint64)
    for part in np.split(values, 10):
        assert numbers.add(part).all()
    assert not numbers.add(values).any()
    assert len(numbers) == 50_000


@given(st.lists(st.lists(st.integers(1, 30) | st.integers(1, 2**64 - 1), max_size=20), max_size=5))
def test_it_agrees_with_the_set_of_python(batches):
    numbers, known = DigestSet(), set()
    for batch in batches:
        expected = [value not in known and value not in batch[:place] for place, value in enumerate(batch)]
        assert add(numbers, *batch) == expected
        known.update(batch)


def test_digests_of_texts_differ_and_packed_ones_come_back():
    assert len(set(digests_of(["a", "b", "a"]).tolist())) == 2
    assert unpack(pack({b"12345678", b"abcdefgh"})) == {b"12345678", b"abcdefgh"}
