from __future__ import annotations

import json

import numpy as np
import pytest

from rota.data.store import InputFile, Manifest, Sentences, Side, Store, StoreWriter, text_names, token_type
from rota.data.subwords import Subwords, SubwordsConfig
from rota.files import read_json, write_json
from rota.types import Route

# Worked out by hand: az has two training sentences, be one; ids need not mean anything.
AZ_SOURCES, AZ_TARGETS = [[4, 10, 11, 2], [4, 12, 2]], [[20, 2], [21, 22, 23, 2]]
BE_SOURCES, BE_TARGETS = [[5, 13, 14, 15, 2]], [[24, 25, 2]]


def write(folder, vocabulary=100):
    folder.mkdir()
    (folder / "text").mkdir()
    Subwords.train(["a b"], ["az", "be"], SubwordsConfig(size=300)).save(folder / "subwords.json")
    with StoreWriter(folder, ["az", "be"], vocabulary) as writer:
        for split in ("train", "dev", "test"):
            append(writer, split, "az", AZ_SOURCES[:1], AZ_TARGETS[:1])
            append(writer, split, "az", AZ_SOURCES[1:], AZ_TARGETS[1:])
            append(writer, split, "be", BE_SOURCES, BE_TARGETS)
        for split in ("dev", "test"):
            for name in (
                *text_names(split, "az", Route("az", "en", "az")),
                *text_names(split, "be", Route("be", "en", "be")),
            ):
                (folder / name).write_text(f"{name}\nsecond\n", encoding="utf-8")
        writer.finish(low_resource=["be"], target="en", cleaning={}, settings={}, inputs={})
    return folder


def append(writer, split, arm, sources, targets):
    writer.append(split, arm, Side.of(sources, writer.vocabulary), Side.of(targets, writer.vocabulary))


@pytest.fixture
def folder(tmp_path):
    return write(tmp_path / "data")


def test_a_batch_holds_its_sentences_in_the_order_asked_for(folder):
    batch = Store.open(folder).split("train").batch("mixed", np.array([2, 0]))
    assert batch.source.tolist() == [5, 13, 14, 15, 2, 4, 10, 11, 2]
    assert batch.source_lengths.tolist() == [5, 4]
    assert batch.target.tolist() == [24, 25, 2, 20, 2]
    assert batch.target_lengths.tolist() == [3, 2]
    assert batch.tokens_by_language == {"be": 3, "az": 2}


def test_a_batch_of_one_language_counts_its_tokens_for_it(folder):
    batch = Store.open(folder).split("train").batch("az", np.array([1, 0, 1]))
    assert batch.tokens_by_language == {"az": 10}
    assert batch.target.tolist() == [21, 22, 23, 2, 20, 2, 21, 22, 23, 2]


def test_the_shares_of_a_mixture_leave_out_absent_languages(folder):
    assert Store.open(folder).split("train").batch("mixed", np.array([0, 1])).tokens_by_language == {"az": 6}


def test_languages_are_ranges_of_sentences(folder):
    train = Store.open(folder).split("train")
    assert train.range("az") == (0, 2)
    assert train.range("be") == (2, 3)
    assert len(train) == 3


def test_the_store_knows_sizes_and_who_is_low_resource(folder):
    store = Store.open(folder)
    assert store.languages == ("az", "be")
    assert store.sizes == {"az": 2, "be": 1}
    assert (store.low_resource, store.high_resource) == (("be",), ("az",))
    assert [store.subwords.tag(language) for language in store.languages] == [4, 5]
    extent = store.manifest.splits["train"]["az"]
    assert (extent.sentences, extent.source_tokens, extent.target_tokens) == (2, 7, 6)


def test_the_text_of_dev_comes_in_pairs(folder):
    pairs = Store.open(folder).text("dev", "az")
    assert pairs == [("text/dev.az-en.az", "text/dev.az-en.en"), ("second", "second")]


def test_twelve_arrays_do_for_any_number_of_languages(folder):
    assert len(list(folder.glob("*.tokens"))) + len(list(folder.glob("*.offsets"))) == 12


def test_a_gather_equals_python_slices_on_random_sentences():
    rng = np.random.default_rng(0)
    sentences = random_sentences(rng, count=50)
    indices = rng.permutation(50)[:20]
    expected = [t for i in indices for t in sentences.source.tokens[slice(*sentences.source.offsets[i : i + 2])]]
    assert sentences.batch("az", indices).source.tolist() == expected


def random_sentences(rng, count) -> Sentences:
    from rota.data.store import Flat

    def flat():
        ends = np.concatenate([[0], np.cumsum(rng.integers(1, 9, count))])
        return Flat(rng.integers(0, 100, ends[-1]), ends)

    return Sentences(flat(), flat(), {"az": (0, count)})


def test_tokens_take_two_bytes_while_the_vocabulary_allows_it(tmp_path):
    assert token_type(65_536) is np.uint16  # the largest id is 65,535
    assert token_type(65_537) is np.int32
    wide = Store.open(write(tmp_path / "wide", vocabulary=70_000))
    assert wide.split("train").batch("be", np.array([2])).target.tolist() == [24, 25, 2]
    assert (tmp_path / "wide" / "train.target.tokens").stat().st_size == 9 * 4


def test_a_check_of_intact_data_is_silent_and_changes_nothing(folder, caplog):
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    store = Store.open(folder)
    store.check()
    assert not caplog.records
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == before


def test_a_folder_that_is_not_prepared_says_what_to_run(tmp_path):
    with pytest.raises(ValueError, match=r"holds no prepared data.*rota prepare"):
        Store.open(tmp_path)


def test_a_missing_file_is_named(folder):
    (folder / "train.source.tokens").unlink()
    with pytest.raises(ValueError, match=r"train\.source\.tokens is missing.*--again"):
        Store.open(folder)


def test_a_shortened_file_is_noticed_on_opening(folder):
    (folder / "train.target.tokens").write_bytes(b"ab")
    with pytest.raises(ValueError, match=r"train\.target\.tokens has 2 bytes instead of 18"):
        Store.open(folder)


def test_a_changed_byte_is_noticed_by_the_check(folder):
    path = folder / "dev.source.tokens"
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    with pytest.raises(ValueError, match=r"dev\.source\.tokens is damaged"):
        Store.open(folder).check()


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}'])
def test_a_damaged_manifest_is_named(folder, content):
    (folder / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match=r"manifest\.json is damaged.*--again"):
        Store.open(folder)


def test_an_edited_manifest_no_longer_fits_its_fingerprint(folder):
    content = json.loads((folder / "manifest.json").read_text())
    content["low_resource"] = ["az"]
    del content["check"]
    (folder / "manifest.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"manifest\.json is damaged.*fingerprint"):
        Store.open(folder)


def test_a_newer_format_is_refused_by_number(folder):
    content = read_json(folder / "manifest.json", remedy="") | {"format": 2}
    write_json(folder / "manifest.json", content, checked=True)
    with pytest.raises(ValueError, match="has format 2, this version of Rota reads 1"):
        Store.open(folder)


def test_an_unknown_language_is_named_with_the_known_ones(folder):
    with pytest.raises(ValueError, match="unknown language 'fr'; the data have az, be"):
        Store.open(folder).text("dev", "fr")


def test_the_text_of_train_is_not_kept(folder):
    with pytest.raises(ValueError, match="'train' is not kept"):
        Store.open(folder).text("train", "az")


def test_pieces_of_a_language_must_be_adjacent(tmp_path):
    with StoreWriter(tmp_path, ["az", "be"], 100) as writer:
        append(writer, "train", "az", AZ_SOURCES, AZ_TARGETS)
        append(writer, "train", "be", BE_SOURCES, BE_TARGETS)
        with pytest.raises(AssertionError, match="not adjacent"):
            append(writer, "train", "az", AZ_SOURCES, AZ_TARGETS)


def test_sides_are_joined_one_after_the_other():
    joined = Side.joined([Side.of(AZ_SOURCES, 100), Side.of(BE_SOURCES, 100)])
    assert joined.tokens.tolist() == [4, 10, 11, 2, 4, 12, 2, 5, 13, 14, 15, 2]
    assert joined.lengths.tolist() == [4, 3, 5]


def test_the_fingerprint_names_the_data_not_the_place(folder, tmp_path):
    there = Manifest.load(write(tmp_path / "elsewhere"))
    assert there.fingerprint == Store.open(folder).fingerprint
    assert there.fingerprint != there.model_copy(update={"low_resource": ()}).fingerprint


def test_an_input_is_the_same_file_after_a_touch_and_another_after_an_edit(tmp_path):
    path = tmp_path / "train.az"
    path.write_text("bir")
    recorded = InputFile.of(path)
    path.touch()
    assert recorded.is_still(path)
    path.write_text("iki")
    assert not recorded.is_still(path)
