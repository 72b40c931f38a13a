"""A text divided by the length of its sentences or the rarity of its words; a DQN chooses among the parts."""

import math

import pytest
from small_corpus import sentences, write_corpus
from test_sources import texts, write_tsv

from rota import api
from rota.config import parse_config
from rota.data.corpora.bins import equal_edges, score_of, split_text
from rota.data.corpora.parallel import ParallelText
from rota.runs import Run

PAIRS = [
    ("a a b", "one"),
    ("a c", "two of them"),
    ("b", "three of them here"),
    ("a a", "four"),
    ("d d d", "five is it"),
]


def text(pairs=PAIRS):
    return ParallelText("made", (), lambda: iter(pairs))


def parts(pairs=PAIRS, by="length", edges=(), names=("1", "2")):
    return [list(part.read()) for part in split_text(text(pairs), by, edges, names)]


def test_length_counts_the_words_of_the_target():
    score = score_of(text(), "length")
    assert [score(pair) for pair in PAIRS] == [1, 3, 4, 1, 3]


def test_rarity_is_the_mean_surprise_of_the_source_words():
    # Of 11 words a has 5, b 2, c 1, d 3.
    score = score_of(text(), "rarity")
    a, b, c, d = (-math.log(count / 11) for count in (5, 2, 1, 3))
    assert [score(pair) for pair in PAIRS] == pytest.approx([(2 * a + b) / 3, (a + c) / 2, b, a, d])
    assert score(("", "nothing")) == 0


def test_bins_have_equal_sizes_and_the_lowest_come_first():
    assert equal_edges([5.0, 1, 4, 2, 3, 6], 3) == [3, 5]
    assert parts(by="rarity") == [[PAIRS[0], PAIRS[3]], [PAIRS[1], PAIRS[2], PAIRS[4]]]


def test_edges_divide_where_they_lie():
    assert parts(edges=(2, 4), names=("1", "2", "3")) == [[PAIRS[0], PAIRS[3]], [PAIRS[1], PAIRS[4]], [PAIRS[2]]]


def test_a_bin_without_a_pair_is_an_error():
    message = "made: no pair is in part '1' of split_by; many have the same length: use fewer bins"
    with pytest.raises(ValueError, match=message):
        parts([("a", "x"), ("b", "y")])
    with pytest.raises(ValueError, match="made: no pair is in part '2' of split_by; change edges"):
        parts(edges=(100,), names=("1", "2"))


def test_sources_are_divided_by_length_from_files_and_from_a_languages_own_text(tmp_path):
    english = [" ".join(["word"] * (number % 5 + 1) + [str(number)]) for number in range(30)]
    path = write_tsv(tmp_path / "all.tsv", english)
    sources = {"q": {"language": "az", "train": path, "split_by": {"by": "length", "bins": 2}}}
    corpus = write_corpus(tmp_path / "text", sources=sources)
    short, long = (texts(corpus, tmp_path, arm) for arm in ("q.1", "q.2"))
    assert max(len(line.split()) for line in short) < min(len(line.split()) for line in long)
    assert sorted(short + long) == sorted(english)
    own = {"az-part": {"language": "az", "take": 0.5, "split_by": {"by": "rarity", "bins": 2}}}
    corpus = write_corpus(tmp_path / "other", sources=own)
    assert texts(corpus, tmp_path, "az-part.1")
    assert set(texts(corpus, tmp_path, "az-part.1")).isdisjoint(texts(corpus, tmp_path, "az-part.2"))


def test_a_teacher_chooses_among_bins_and_resumes(tmp_path):
    english = sentences(60, seed=7)
    path = write_tsv(tmp_path / "all.tsv", english, [[len(line)] for line in english])
    sources = {"crawl": {"language": "az", "train": path, "split_by": {"column": 3, "bins": 3}}}
    corpus = write_corpus(tmp_path / "text", sources=sources).model_dump(mode="json")
    teacher = {"name": "kumar", "decide_every": 1, "groups": 2, "group_sentences": 2, "reward_tokens": 60}
    teacher |= {"hidden": [4], "replay_minimum": 2, "replay_batch": 2, "epsilon_steps": 6}
    values = {
        "data": {**corpus, "folder": str(tmp_path / "data"), "subwords": {"size": 300}},
        "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 2},
        "teacher": teacher,
        "training": {"steps": 8, "tokens": 60, "checkpoint_every": 4, "validate_every": 4, "threads": 1},
    }
    whole, halves = Run(tmp_path / "whole"), Run(tmp_path / "halves")
    api.train(parse_config(values), whole.folder)
    api.train(parse_config(values), halves.folder, until=4)
    loop = api.train(parse_config(values), halves.folder)
    teacher = loop.turns.teacher.teacher  # inside the guard
    assert {"crawl.1", "crawl.2", "crawl.3"} <= set(teacher.arms)
    # Two groups of training sentences of each arm.
    assert teacher.state_dict()["state"].shape == (2 * len(teacher.arms),)
    for name in ("steps", "rewards", "validations"):
        assert whole.record_path(name).read_bytes() == halves.record_path(name).read_bytes()
