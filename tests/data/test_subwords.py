from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rota.data.subwords import EOS, PAD, UNK, Subwords, SubwordsConfig, sample_lines

LANGUAGES = ("az", "be", "pt_br")
TEXTS = [
    "the sea is wide and the sky is high",
    "dəniz genişdir və göy hündürdür",
    "мора шырокае, а неба высокае",
    "o mar é largo, o céu é alto",
    "they wrote a</s>b and x__az__y and z<unk>z and q<pad>q",
] * 20

RAW = Subwords.train(TEXTS, LANGUAGES, SubwordsConfig(size=500))
TOKENISED = Subwords.train(TEXTS, LANGUAGES, SubwordsConfig(size=500, text="tokenised"))


@given(st.text())
@settings(max_examples=300, deadline=None)
def test_raw_subwords_lose_nothing_of_any_text(text):
    assert RAW.decode(RAW.encode_targets([text])[0]) == text.strip()


@given(st.text(alphabet=sorted(set("".join(TEXTS)))))
@settings(max_examples=300, deadline=None)
def test_tokenised_subwords_keep_every_word_of_known_characters(text):
    ids = TOKENISED.encode_targets([text])[0]
    assert UNK not in ids
    assert TOKENISED.decode(ids) == " ".join(text.split())


@pytest.mark.parametrize("subwords", [RAW, TOKENISED], ids=["raw", "tokenised"])
@pytest.mark.parametrize("text", ["</s>", "a</s>b", "x__az__y", "__az__", "z<unk>z", "q<pad>q", "<s>", "__pt_br__"])
def test_text_that_spells_a_symbol_is_ordinary_text(subwords, text):
    ids = subwords.encode_targets([text])[0][:-1]
    assert min(ids) >= 4 + len(LANGUAGES)
    assert subwords.decode(ids) == text


def test_symbols_frequent_inside_words_are_still_not_learned_as_subwords():
    texts = [f"{letter}</s>{letter} {letter}__az__{letter}" for letter in "abcdefghijklmnop"] * 5
    subwords = Subwords.train(texts, ["az"], SubwordsConfig(size=200, text="tokenised"))
    ids = subwords.encode_targets(["q</s>r q__az__r a</s>b"])[0][:-1]
    assert not {EOS, subwords.tag("az")} & set(ids)


def test_ids_follow_m2m100_and_tags_the_order_of_the_languages():
    assert (PAD, EOS, UNK) == (1, 2, 3)
    assert [RAW.tag(language) for language in LANGUAGES] == [4, 5, 6]


def test_a_source_opens_with_its_tag_and_both_sides_close_with_the_end_of_sentence():
    source = RAW.encode_sources("be", ["мора"])[0]
    target = RAW.encode_targets(["мора"])[0]
    assert source == [5, *target]
    assert target[-1] == 2
    assert RAW.decode(source) == "мора"


def test_an_empty_text_is_the_end_of_sentence_alone():
    assert RAW.encode_targets(["", "  "]) == [[2], [2]]
    assert RAW.decode([2]) == ""


def test_a_character_never_seen_is_unknown_in_tokenised_text_and_spares_its_neighbours():
    ids = TOKENISED.encode_targets(["sea 水 sky"])[0]
    assert ids.count(UNK) == 1
    assert TOKENISED.decode(ids).split() == ["sea", "sky"]


def test_decoding_a_batch_takes_arrays_and_gives_the_texts_in_order():
    encoded = [np.array(ids) for ids in RAW.encode_targets(["the sea", "o céu"])]
    assert RAW.decode_batch(encoded) == ["the sea", "o céu"]


@pytest.mark.parametrize("subwords", [RAW, TOKENISED], ids=["raw", "tokenised"])
def test_a_saved_file_gives_the_same_subwords_and_still_reads_symbols_as_text(subwords, tmp_path):
    subwords.save(tmp_path / "subwords.json")
    loaded = Subwords.load(tmp_path / "subwords.json")
    assert [loaded.tag(language) for language in LANGUAGES] == [4, 5, 6]
    assert loaded.vocabulary == subwords.vocabulary
    assert loaded.encode_sources("az", ["a</s>b"]) == subwords.encode_sources("az", ["a</s>b"])


TRAIN_AND_PRINT = """
import sys
from pathlib import Path
from rota.data.subwords import Subwords, SubwordsConfig
sys.path.insert(0, str(Path({here!r}).parent))
from test_subwords import TEXTS
Subwords.train(TEXTS, ["az"], SubwordsConfig(size=500, text={text!r})).save(Path({to!r}))
"""


@pytest.mark.parametrize("text", ["raw", "tokenised"])
def test_another_process_learns_the_same_file_byte_for_byte(text, tmp_path):
    Subwords.train(TEXTS, ["az"], SubwordsConfig(size=500, text=text)).save(tmp_path / "here.json")
    script = TRAIN_AND_PRINT.format(here=__file__, text=text, to=str(tmp_path / "there.json"))
    subprocess.run([sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONHASHSEED": "7"})
    assert (tmp_path / "here.json").read_bytes() == (tmp_path / "there.json").read_bytes()


def test_transformers_reads_the_file_and_agrees(tmp_path):
    transformers = pytest.importorskip("transformers")
    RAW.save(tmp_path / "subwords.json")
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(tmp_path / "subwords.json"), split_special_tokens=True, eos_token="</s>", pad_token="<pad>"
    )
    text = "the sea a</s>b göy"
    assert [*theirs(text)["input_ids"], EOS] == RAW.encode_targets([text])[0]
    assert theirs.decode(theirs(text)["input_ids"], clean_up_tokenization_spaces=False) == text


def test_a_text_too_small_for_the_size_gives_fewer_subwords():
    assert 4 + 3 + 256 < RAW.vocabulary < 500


def test_a_size_without_room_for_the_bytes_is_refused_with_the_number_needed():
    with pytest.raises(ValueError, match=r"subwords\.size 100 is too small.*263"):  # 4 symbols, 3 tags, 256 bytes
        Subwords.train(TEXTS, LANGUAGES, SubwordsConfig(size=100))


def test_a_size_without_room_for_the_characters_is_refused():
    characters = len(set("".join(TEXTS)))
    with pytest.raises(ValueError, match=f"need {4 + 3 + characters}"):
        Subwords.train(TEXTS, LANGUAGES, SubwordsConfig(size=20, text="tokenised"))


def test_an_unknown_language_is_named_with_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown language 'fr'.*az, be, pt_br"):
        RAW.encode_sources("fr", ["la mer"])


def test_a_missing_or_damaged_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.json does not exist"):
        Subwords.load(tmp_path / "nowhere.json")
    (tmp_path / "half.json").write_text(json.dumps({"version": "1.0"})[:-3])
    with pytest.raises(ValueError, match=r"half\.json is damaged"):
        Subwords.load(Path(tmp_path / "half.json"))


def test_a_small_language_repeats_its_lines_evenly_to_the_number_wanted():
    times = np.bincount(sample_lines(4, 10, np.random.default_rng(1)), minlength=4)
    assert sorted(times) == [2, 2, 3, 3]


def test_a_large_language_gives_different_lines_at_random():
    chosen = sample_lines(1000, 10, np.random.default_rng(1))
    assert len(set(chosen.tolist())) == 10
    assert list(chosen) == sorted(chosen)
    assert chosen.tolist() == sample_lines(1000, 10, np.random.default_rng(1)).tolist()
    assert chosen.tolist() != sample_lines(1000, 10, np.random.default_rng(2)).tolist()


def test_no_lines_at_all_is_an_error():
    with pytest.raises(ValueError, match="no lines"):
        sample_lines(0, 10, np.random.default_rng(1))
