from __future__ import annotations

import gzip

import numpy as np
import pytest
from small_corpus import run, sentences, write_corpus

from rota.data.corpora.parallel import ParallelText
from rota.data.corpora.sources import CorpusConfig
from rota.data.preparation.cleaning import CleaningConfig
from rota.data.preparation.units import fits
from rota.data.store import Store
from rota.data.subwords import SubwordsConfig


def test_a_corpus_becomes_arrays_and_texts(corpus, tmp_path):
    store = run(corpus, tmp_path / "data")
    store.check()
    assert store.sizes == {"az": 30, "tr": 80}
    assert (store.low_resource, store.high_resource) == (("az",), ("tr",))
    assert [len(store.split(split)) for split in ("train", "dev", "test")] == [110, 11, 11]


def test_decoded_arrays_are_the_text_in_its_order(corpus, tmp_path):
    store = run(corpus, tmp_path / "data")
    for split in ("dev", "test"):
        for language in ("az", "tr"):
            indices = np.arange(*store.split(split).range(language))
            assert [decode(store, split, language, index) for index in indices] == store.text(split, language)
    train = (tmp_path / "text" / "train.tr.en").read_text().splitlines()
    assert [decode(store, "train", "tr", index)[1] for index in range(30, 110)] == train


def decode(store, split, language, index):
    batch = store.split(split).batch(language, np.array([index]))
    assert batch.source[0] == store.subwords.tag(language)
    assert batch.source[-1] == batch.target[-1] == 2
    return store.subwords.decode(batch.source), store.subwords.decode(batch.target)


@pytest.mark.parametrize("processes", [1, 2])
def test_all_texts_that_cannot_be_read_are_named_at_once(corpus, tmp_path, processes):
    text = tmp_path / "text"
    for name, lines in (("dev.tr.en", b"one line\n"), ("train.az.az", b"caf\xe9\n" * 30), ("test.az.en", b"")):
        (text / name).write_bytes(lines)
    with pytest.raises(ValueError, match="cannot be used either") as error:
        run(corpus, tmp_path / "data", processes=processes)
    message = str(error.value)
    assert "\n" not in message
    assert f"{text}/dev.tr.tr has 6 lines, {text}/dev.tr.en has 1" in message
    assert f"{text}/train.az.az, line 1: byte 0xe9 is not UTF-8" in message
    assert f"{text}/test.az.az has 5 lines, {text}/test.az.en has 0" in message
    assert message.count("has 6 lines") == 1


def test_a_single_text_that_cannot_be_read_has_the_message_that_it_always_had(corpus, tmp_path):
    (tmp_path / "text" / "dev.tr.en").write_text("one line\n")
    with pytest.raises(ValueError, match=r"dev.tr.en has 1; they must be aligned .* where one is missing$"):
        run(corpus, tmp_path / "data")


def test_training_text_and_the_partial_folder_do_not_stay(corpus, tmp_path):
    run(corpus, tmp_path / "data")
    assert not list((tmp_path / "data" / "text").glob("train*"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "text"]


def test_the_same_corpus_in_two_places_gives_the_same_bytes(corpus, tmp_path):
    one = run(corpus, tmp_path / "one")
    two = run(corpus, tmp_path / "two")
    assert one.fingerprint == two.fingerprint
    assert one.manifest.files == two.manifest.files


def test_cleaning_is_counted_per_language_split_and_reason(tmp_path):
    corpus = write_corpus(tmp_path / "text", train={"az": lambda texts: [*texts, texts[0], texts[0], ""]})
    counts = run(corpus, tmp_path / "data").manifest.cleaning["az"]["train"]
    assert counts["kept"] == 30
    assert counts["duplicate pair"] == 2
    assert counts["empty side"] == 1


def test_no_english_of_any_dev_or_test_set_is_in_training(tmp_path):
    dev_of_tr = sentences(6, 13)
    assert all(len(text.split()) >= 4 for text in dev_of_tr)
    corpus = write_corpus(tmp_path / "text", train={"az": lambda texts: texts + dev_of_tr})
    store = run(corpus, tmp_path / "data", cleaning=CleaningConfig(leak_words=4))
    assert store.manifest.cleaning["az"]["train"]["English in dev or test"] == 6
    assert store.sizes["az"] == 30


def test_pairs_of_too_many_subwords_are_dropped_from_training_alone(corpus, tmp_path):
    generous = run(corpus, tmp_path / "all")
    lengths = generous.split("train").target.lengths(np.arange(30)) - 1  # az, without the end of sentence
    sources = generous.split("train").source.lengths(np.arange(30)) - 2  # nor the tag
    limit = int(np.median(lengths))
    expected = int(((lengths <= limit) & (sources <= limit)).sum())
    assert 0 < expected < 30
    store = run(corpus, tmp_path / "short", subwords=SubwordsConfig(size=400, lines=50, max_subwords=limit))
    assert store.sizes["az"] == expected
    assert store.manifest.cleaning["az"]["train"]["too long"] == 30 - expected
    assert store.manifest.cleaning["az"]["train"]["kept"] == expected
    assert len(store.split("dev")) == 11


def test_tag_and_ends_of_sentences_do_not_count_as_subwords():
    assert fits([4, 50, 51, 2], [60, 61, 2], limit=2)
    assert not fits([4, 50, 51, 52, 2], [60, 61, 2], limit=2)
    assert not fits([4, 50, 51, 2], [60, 61, 62, 2], limit=2)


def test_again_replaces_what_was_prepared_before(corpus, tmp_path):
    old = run(corpus, tmp_path / "data")
    new = run(corpus, tmp_path / "data", subwords=SubwordsConfig(size=300, lines=50), again=True)
    assert new.manifest.vocabulary == 300
    assert old.manifest.vocabulary > 300
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "text"]


def test_again_repairs_damaged_data(corpus, tmp_path):
    run(corpus, tmp_path / "data")
    (tmp_path / "data" / "train.source.tokens").unlink()
    with pytest.raises(ValueError, match=r"train\.source\.tokens is missing"):
        run(corpus, tmp_path / "data")
    run(corpus, tmp_path / "data", again=True).check()


def test_an_error_leaves_no_folder_behind(corpus, tmp_path):
    with (tmp_path / "text" / "train.tr.en").open("ab") as file:
        file.write(b"\xff\n")
    with pytest.raises(ValueError, match=r"train\.tr\.en, line 81"):
        run(corpus, tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]


def test_a_failed_replacement_keeps_the_old_data(corpus, tmp_path):
    run(corpus, tmp_path / "data")
    (tmp_path / "text" / "train.tr.en").write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match="not UTF-8"):
        run(corpus, tmp_path / "data", again=True)
    Store.open(tmp_path / "data").check()


def test_a_folder_with_other_things_is_left_alone(corpus, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("mine")
    with pytest.raises(ValueError, match="home exists and is not prepared data"):
        run(corpus, tmp_path / "home", again=True)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "mine"


def test_an_empty_folder_is_filled(corpus, tmp_path):
    (tmp_path / "data").mkdir()
    assert run(corpus, tmp_path / "data").sizes["az"] == 30


def test_progress_tells_stages_and_reaches_the_total(corpus, tmp_path):
    seen = []
    run(corpus, tmp_path / "data", progress=lambda *report: seen.append(report))
    stages = ["cleaning", "learning subwords", "encoding", "assembling"]
    assert list(dict.fromkeys(stage for stage, _, _ in seen)) == stages
    assert [report for report in seen if report[0] == "cleaning"][-1] == ("cleaning", 132, None)  # 110 + 11 + 11
    assert [report for report in seen if report[0] == "encoding"][-1] == ("encoding", 132, 132)
    assert seen[-1] == ("assembling", 132, 132)


def test_a_language_whose_sentences_are_all_too_long_is_named(corpus, tmp_path):
    with pytest.raises(ValueError, match=r"training pairs of 'az' are longer than subwords\.max_subwords 1"):
        run(corpus, tmp_path / "data", subwords=SubwordsConfig(size=400, lines=50, max_subwords=1))


def test_a_split_without_a_single_pair_is_named(tmp_path, monkeypatch):
    texts = {split: ParallelText(f"{split}.tsv", (), lambda: iter([("a b", "c d")])) for split in ("train", "test")}
    texts["dev"] = ParallelText("dev.tsv", (), lambda: iter([]))
    monkeypatch.setattr("rota.data.preparation.stages.open_corpus", lambda config, cache: {"az": texts})
    with pytest.raises(ValueError, match="nothing of dev for 'az'"):
        run(write_corpus(tmp_path / "text"), tmp_path / "data")


def test_gzipped_text_gives_the_same_data(corpus, tmp_path):
    plain = run(corpus, tmp_path / "plain")
    for path in list((tmp_path / "text").iterdir()):
        path.with_name(path.name + ".gz").write_bytes(gzip.compress(path.read_bytes()))
    zipped = corpus.model_copy(update={split: f"{getattr(corpus, split)}.gz" for split in ("train", "dev", "test")})
    assert run(zipped, tmp_path / "zipped").fingerprint == plain.fingerprint


def test_the_synthetic_corpus_prepares(tmp_path):
    corpus = CorpusConfig.model_validate({"corpus": "synthetic", "synthetic": {"high": 300, "low": 40, "dev": 20}})
    store = run(corpus, tmp_path / "data", subwords=SubwordsConfig(size=600, lines=200))
    assert [len(store.text("dev", language)) for language in store.languages] == [20] * 4
    assert store.manifest.inputs == {}
