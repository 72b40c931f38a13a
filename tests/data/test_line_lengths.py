"""Text whose lines were shifted or mixed is named when it is prepared, and aligned text is not."""

from dataclasses import replace

import numpy as np
import pytest
from small_corpus import run, sentences, write_corpus

from rota.data.corpora.sources import CorpusConfig, open_corpus
from rota.data.preparation.line_lengths import LineLengths, Misfit, misfit_of, warn_of_misfits
from rota.data.preparation.mess import ArmMess, MessConfig


def lengths(pairs, seed=1, noise=0.2):
    """Characters of source and target: log lengths with a standard deviation of 0.5, and of their ratio ``noise``."""
    rng = np.random.default_rng(seed)
    common = 4 + 0.5 * rng.standard_normal(pairs)
    return tuple(np.rint(np.exp(common + noise * rng.standard_normal(pairs) / 2**0.5)).astype(int) for _ in range(2))


def test_aligned_text_is_not_named():
    for seed in range(50):
        assert misfit_of(*lengths(1000, seed)) is None


@pytest.mark.parametrize(
    ("source", "target", "shift"), [(slice(1, None), slice(-1), 1), (slice(-1), slice(1, None), -1)]
)
def test_text_shifted_by_a_line_is_named_and_so_is_the_line_that_fits(source, target, shift):
    """A source that lost its first line fits the next target line, a target that lost its first the previous one."""
    of_source, of_target = lengths(1001)
    found = misfit_of(of_source[source], of_target[target])
    assert (found.first, found.last, found.pairs, found.elsewhere) == (1, 1000, 1000, None)
    assert abs(found.correlation) < 0.15
    assert found.shift == shift
    assert found.shifted > 0.9


def test_the_place_where_a_shift_begins_is_named_to_a_block():
    source, target = lengths(3000)
    found = misfit_of(source, np.delete(np.append(target, 30), 2000))
    assert abs(found.first - 2001) <= 50
    assert (found.last, found.pairs) == (3000, 3000)
    assert found.elsewhere > 0.9
    assert found.text.startswith(
        f"from about pair {found.first:,} of 3,000 on, the lengths of source and target lines "
    )


def test_a_part_in_the_middle_is_named_with_both_ends():
    source, target = lengths(3000)
    target[1000:1500] = np.roll(target[1000:1500], 7)
    found = misfit_of(source, target)
    assert (found.first, found.last, found.shift) == (1001, 1500, 0)
    assert "in about pairs 1,001 to 1,500 of 3,000, the lengths" in found.text


def test_mixed_lines_are_named_without_a_shift():
    source, target = lengths(1000)
    found = misfit_of(source, np.random.default_rng(2).permutation(target))
    assert found.shift == 0
    assert found.text == (
        "the lengths of source and target lines hardly go together "
        f"(correlation {found.correlation:.2f}); are its lines aligned?"
    )


def test_little_text_is_not_judged():
    source, target = lengths(199)
    assert misfit_of(source[:-1], target[1:]) is None
    assert LineLengths().misfit() is None


def test_lengths_that_go_together_a_little_are_enough_if_those_of_neighbours_do_not():
    """As in a list of words: a correlation of 0.3 in two thousand pairs is not chance."""
    source, target = lengths(2000, noise=1.1)
    correlation = np.corrcoef(np.log(source), np.log(target))[0, 1]
    assert 0.2 < correlation < 0.35
    assert misfit_of(source, target) is None


def test_sorted_text_is_not_judged():
    """Within a block all its lines have one length, which goes together with nothing."""
    source, target = lengths(5000)
    order = np.argsort(target, kind="stable")
    assert misfit_of(source[order], target[order]) is None


def test_empty_sides_are_left_out_and_pairs_counted_with_them():
    source, target = lengths(2000)
    target = np.concatenate([target[:1000], target[1001:], [30]])
    with_empty = np.insert(source, 0, np.zeros(500, int)), np.insert(target, 0, np.full(500, 20))
    found = misfit_of(*with_empty)
    assert abs(found.first - 1501) <= 50
    assert found.pairs == 2500


def test_how_the_text_is_cut_into_chunks_changes_nothing():
    source, target = lengths(1234)
    whole, parts = LineLengths(), LineLengths()
    whole.add(source[:-1], target[1:])
    for start in range(0, 1233, 37):
        parts.add(source[:-1][start : start + 37], target[1:][start : start + 37])
    assert replace(parts.misfit(), correlation=0, shifted=0) == replace(whole.misfit(), correlation=0, shifted=0)
    assert parts.misfit().correlation == pytest.approx(whole.misfit().correlation)


def test_pairs_pass_unchanged():
    pairs = [("bir", "one"), ("", "two"), ("üç", "three")]
    assert list(LineLengths().watch(pairs)) == pairs


def test_of_very_many_texts_ten_have_a_line_of_their_own(caplog):
    warn_of_misfits({f"x{number}": Misfit(1, 300, 300, 0.03, None) for number in range(12)})
    assert len(caplog.messages) == 11
    assert caplog.messages[9].startswith("x9: the lengths of source and target lines hardly go together")
    assert caplog.messages[10] == "and 2 more whose lengths hardly go together: x10, x11"


@pytest.fixture
def longer(tmp_path):
    """400 training pairs of az, whose English lost its first line; those of tr are aligned."""
    corpus = write_corpus(
        tmp_path / "text", train={"az": lambda _: sentences(401, 7), "tr": lambda _: sentences(400, 8)}
    )
    for side, lines in (("az", slice(400)), ("en", slice(1, None))):
        path = tmp_path / "text" / f"train.az.{side}"
        path.write_text("".join(path.read_text().splitlines(keepends=True)[lines]))
    return corpus


@pytest.mark.parametrize("processes", [1, 2])
def test_preparing_shifted_files_names_their_language(longer, tmp_path, caplog, processes):
    run(longer, tmp_path / "data", processes=processes)
    (message,) = caplog.messages
    assert message.startswith("az: the lengths of source and target lines hardly go together (correlation ")
    assert ", with the previous target line 0.99); are its lines aligned?" in message


def test_two_directions_of_the_same_text_are_named_once(longer, tmp_path, caplog):
    run(longer.model_copy(update={"directions": "both-ways"}), tmp_path / "data")
    assert [message.partition(":")[0] for message in caplog.messages] == ["az-en"]


def test_a_shifted_dev_set_is_named_as_one(tmp_path, caplog):
    corpus = write_corpus(tmp_path / "text")
    for side, texts in (("az", sentences(301, 7)[:-1]), ("en", sentences(301, 7)[1:])):
        (tmp_path / "text" / f"dev.az.{side}").write_text("".join(f"{text}\n" for text in texts))
    run(corpus, tmp_path / "data")
    assert [message.partition(":")[0] for message in caplog.messages] == ["az (dev)"]


def test_an_arm_that_is_misaligned_on_purpose_is_named(tmp_path, caplog):
    corpus = write_corpus(
        tmp_path / "text", train={"az": lambda _: sentences(400, 7), "tr": lambda _: sentences(400, 8)}
    )
    mess = MessConfig(arms={"tr": ArmMess(misaligned=1.0)})
    run(corpus, tmp_path / "data", mess=mess)
    assert [message.partition(":")[0] for message in caplog.messages] == ["tr"]


def test_generated_text_is_aligned(tmp_path):
    for splits in open_corpus(CorpusConfig(corpus="synthetic"), tmp_path).values():
        for text in splits.values():
            measured = LineLengths()
            assert sum(1 for _ in measured.watch(text.read())) >= 200
            assert measured.misfit() is None
