"""Reading parallel text: every way in which two files can fail to be a corpus is named in one line."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rota.data.corpora.parallel import ParallelText, Split, text_of_files, tidy, warn_of_headers
from rota.data.corpora.sources import CorpusConfig, low_resource, open_corpus


def write(path: Path, text: str | bytes) -> Path:
    data = text.encode() if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def config(folder: Path, languages: tuple[str, ...] = ("az",), **changes: object) -> CorpusConfig:
    patterns = {split: f"{folder}/{split}.{{language}}.tsv" for split in ("train", "dev", "test")}
    return CorpusConfig.model_validate({"languages": languages, **patterns, **changes})


def one_line(error: pytest.ExceptionInfo[ValueError]) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def read(folder: Path, pattern: str | tuple[str, ...]) -> list[tuple[str, str]]:
    patterns = f"{folder}/{pattern}" if isinstance(pattern, str) else tuple(f"{folder}/{name}" for name in pattern)
    return list(text_of_files(patterns, "az", "en").read())


def test_two_aligned_files_are_read_line_by_line(tmp_path):
    write(tmp_path / "az-en/train.az", "bir\niki\n")
    write(tmp_path / "az-en/train.en", "one\ntwo\n")
    assert read(tmp_path, "{language}-en/train.{side}") == [("bir", "one"), ("iki", "two")]


def test_gz_is_decided_by_the_suffix(tmp_path):
    write(tmp_path / "train.az.gz", "bir\n")
    write(tmp_path / "train.en.gz", "one")
    assert read(tmp_path, "train.{side}.gz") == [("bir", "one")]


def test_a_file_that_is_not_there_may_be_there_with_gz_and_the_plain_one_comes_first(tmp_path):
    write(tmp_path / "train.az.gz", "bir\n")
    write(tmp_path / "train.en", "one\n")
    assert read(tmp_path, "train.{side}") == [("bir", "one")]
    write(tmp_path / "train.az", "iki\n")
    assert read(tmp_path, "train.{side}") == [("iki", "one")]


def test_a_pattern_without_side_is_a_table_of_two_columns(tmp_path):
    write(tmp_path / "train.az.tsv.gz", "bir\tone\niki\ttwo\n")
    assert read(tmp_path, "train.{language}.tsv.gz") == [("bir", "one"), ("iki", "two")]


def test_several_patterns_are_read_one_after_the_other_as_often_as_one_likes(tmp_path):
    write(tmp_path / "a.tsv", "bir\tone\n")
    write(tmp_path / "b.az", "iki\n")
    write(tmp_path / "b.en", "two\n")
    text = text_of_files((f"{tmp_path}/a.tsv", f"{tmp_path}/b.{{side}}"), "az", "en")
    assert list(text.read()) == list(text.read()) == [("bir", "one"), ("iki", "two")]
    assert text.files == (tmp_path / "a.tsv", tmp_path / "b.az", tmp_path / "b.en")
    assert text.origin == f"{tmp_path}/a.tsv + {tmp_path}/b.az + {tmp_path}/b.en"


def test_odd_separators_do_not_break_the_alignment(tmp_path):
    write(tmp_path / "t.az", "\ufeffa\u2028b\r\nc\x0bd\x0ce\x85f\ng\rh\x00i\n")
    write(tmp_path / "t.en", "one\ntwo\t2\n\u00a0three\u3000\n")
    assert read(tmp_path, "t.{side}") == [("a b", "one"), ("c d e f", "two 2"), ("g h i", "three")]


@given(st.text())
def test_tidy_text_has_single_spaces_and_no_line_breaks(text):
    clean = tidy(text)
    assert clean == " ".join(clean.split())
    assert len(clean.splitlines()) <= 1
    assert "\0" not in clean
    assert tidy(clean) == clean


def test_unequal_line_counts_are_given_with_both_files(tmp_path):
    write(tmp_path / "t.az", "bir\niki\nüç\n")
    write(tmp_path / "t.en", "one\n")
    with pytest.raises(ValueError, match="aligned") as error:
        read(tmp_path, "t.{side}")
    assert f"{tmp_path}/t.az has 3 lines, {tmp_path}/t.en has 1" in one_line(error)


def test_an_undecodable_byte_is_named_with_its_line(tmp_path):
    write(tmp_path / "t.tsv", b"bir\tone\niki\xe7\ttwo\n")
    with pytest.raises(ValueError, match=r"t\.tsv, line 2: byte 0xe7 is not UTF-8; convert") as error:
        read(tmp_path, "t.tsv")
    one_line(error)


@pytest.mark.parametrize(
    ("line", "columns"), [("bir", "1 column;"), ("bir\tone\tuno", "3 columns;"), ("", "1 column;")]
)
def test_a_line_that_has_not_two_columns_is_named(tmp_path, line, columns):
    write(tmp_path / "t.tsv", f"bir\tone\n{line}\nüç\tthree\n")
    with pytest.raises(ValueError, match=rf"t\.tsv, line 2: {columns}") as error:
        read(tmp_path, "t.tsv")
    one_line(error)


def test_tables_that_begin_alike_may_have_a_header_and_a_single_one_or_columns_of_their_own_do_not(tmp_path, caplog):
    files = [write(tmp_path / f"{number}.tsv.gz", f"source\ttarget\nsöz {number}\tword\n") for number in range(3)]
    plain = [write(tmp_path / f"{number}.az", "bir\n") for number in range(2)]
    warn_of_headers([files[0], *plain])
    assert not caplog.messages
    warn_of_headers([*plain, *files])
    assert caplog.messages == [
        f"{files[0]} and 2 other files begin with the same line, 'source\\ttarget'; if it is a header, remove it "
        "(for example: sed -i 1d FILE): it is read as a pair of sentences"
    ]


def test_a_cut_gzip_file_is_damaged(tmp_path):
    whole = gzip.compress(b"bir\tone\n" * 1000)
    (tmp_path / "t.tsv.gz").write_bytes(whole[:-10])
    with pytest.raises(ValueError, match=r"t\.tsv\.gz is damaged") as error:
        read(tmp_path, "t.tsv.gz")
    one_line(error)


def test_a_file_that_is_no_gzip_is_damaged(tmp_path):
    (tmp_path / "t.tsv.gz").write_bytes(b"bir\tone\n")
    with pytest.raises(ValueError, match="is damaged"):
        read(tmp_path, "t.tsv.gz")


def test_an_empty_file_is_no_corpus(tmp_path):
    write(tmp_path / "t.tsv", "")
    with pytest.raises(ValueError, match=r"t\.tsv: no sentence pair at all") as error:
        read(tmp_path, "t.tsv")
    one_line(error)


def test_a_missing_file_is_noticed_before_anything_is_read(tmp_path):
    for name in ("train", "dev"):
        write(tmp_path / f"{name}.az.tsv", "bir\tone\n")
    with pytest.raises(ValueError, match=r"no file .*test\.az\.tsv \(for language 'az'\)") as error:
        open_corpus(config(tmp_path), tmp_path)
    one_line(error)


def test_all_languages_without_text_are_named_at_once(tmp_path):
    for language, splits in {"az": ("train", "dev"), "be": ("train", "dev", "test"), "tr": ("dev", "test")}.items():
        for split in splits:
            write(tmp_path / f"{split}.{language}.tsv", "bir\tone\n")
    with pytest.raises(ValueError, match=r"no file .*test\.az\.tsv \(for language 'az'\)") as error:
        open_corpus(config(tmp_path, ("az", "be", "tr", "ru")), tmp_path)
    others = [f"{tmp_path}/{name}.tsv" for name in ("train.tr", "train.ru", "dev.ru", "test.ru")]
    assert f" (missing too: {', '.join(others)})" in one_line(error)


def test_of_sixty_languages_without_text_ten_files_are_named_and_the_rest_counted(tmp_path):
    languages = tuple(f"x{number}" for number in range(60))
    with pytest.raises(ValueError, match="no file") as error:
        open_corpus(config(tmp_path, languages), tmp_path)
    assert f"{tmp_path}/dev.x3.tsv and 169 more)" in one_line(error)


def test_all_sources_without_text_are_named_at_once(tmp_path):
    for split in ("train", "dev", "test"):
        write(tmp_path / f"{split}.az.tsv", "bir\tone\n")
    sources = {name: {"language": "az", "train": f"{tmp_path}/{name}.tsv"} for name in ("web", "books")}
    with pytest.raises(ValueError, match=r"no file .*web\.tsv .*\(missing too: .*books\.tsv\)"):
        open_corpus(config(tmp_path, sources=sources), tmp_path)


def test_all_pairs_of_languages_without_text_are_named_at_once(tmp_path):
    patterns = {split: f"{tmp_path}/{split}.{{side}}" for split in ("train", "dev", "test")}
    for name in ("train.az", "train.tr"):
        write(tmp_path / name, "bir\n")
    with pytest.raises(ValueError, match=r"no file .*dev\.az .*\(missing too: .*dev\.tr, .*test\.az, .*test\.tr\)"):
        open_corpus(CorpusConfig(directions=("az-tr",), **patterns), tmp_path)


def numbered(folder: Path, language: str, count: int) -> None:
    """Training text: the same English in every language, counted up."""
    write(folder / f"train.{language}.tsv", "".join(f"{language} {n}\tnumber {n}\n" for n in range(count)))


def english(text: ParallelText) -> set[str]:
    return {target for _, target in text.read()}


def test_dev_and_test_sets_are_held_out_of_the_training_text_and_are_the_same_sentences_in_all_languages(tmp_path):
    for language in ("az", "tr"):
        numbered(tmp_path, language, 100)
    numbered(tmp_path, "be", 30)
    corpus = open_corpus(config(tmp_path, ("az", "tr", "be"), dev=None, test=None, hold_out=5), tmp_path)
    az, tr, be = ({split: english(text) for split, text in splits.items()} for splits in corpus.values())
    assert {split: len(found) for split, found in az.items()} == {"train": 90, "dev": 5, "test": 5}
    assert az == tr
    assert {split: len(found) for split, found in be.items()} == {"train": 24, "dev": 3, "test": 3}  # a tenth at most
    assert set.union(*az.values()) == {f"number {n}" for n in range(100)}
    assert set.union(*be.values()) == {f"number {n}" for n in range(30)}


def test_only_languages_without_a_dev_set_hold_sentences_out_and_a_pattern_that_finds_none_is_a_mistake(
    tmp_path, caplog
):
    for language in ("az", "tr"):
        numbered(tmp_path, language, 40)
        write(tmp_path / f"test.{language}.tsv", "son\tlast\n")
    write(tmp_path / "dev.az.tsv", "bir\tone\n")
    caplog.set_level("INFO")
    corpus = open_corpus(config(tmp_path, ("az", "tr"), hold_out=200), tmp_path)
    assert english(corpus["az"]["dev"]) == {"one"}
    assert len(english(corpus["az"]["train"])) == 40
    assert [len(english(corpus["tr"][split])) for split in ("train", "dev", "test")] == [36, 4, 1]
    assert caplog.messages == ["dev or test sentences held out of the training text of tr"]
    with pytest.raises(ValueError, match=r"no file .*typo\.az\.tsv"):
        open_corpus(config(tmp_path, ("az", "tr"), hold_out=200, dev=f"{tmp_path}/typo.{{language}}.tsv"), tmp_path)


def test_a_language_without_a_dev_set_is_told_of_hold_out_and_one_without_training_text_is_not(tmp_path):
    numbered(tmp_path, "az", 40)
    with pytest.raises(ValueError, match=r"no file .*dev\.az\.tsv .*; or write data\.hold_out: 200") as error:
        open_corpus(config(tmp_path), tmp_path)
    one_line(error)
    with pytest.raises(ValueError, match=r"no file .*train\.be\.tsv .*in the config \(missing too: .*test\.be\.tsv\)$"):
        open_corpus(config(tmp_path, ("be",)), tmp_path)


def test_a_pattern_with_another_name_in_braces_is_refused():
    with pytest.raises(
        ValueError, match=r"has \{lang\}; only \{language\}, \{side\}, \{source\} and \{target\} are known"
    ):
        text_of_files("train.{lang}.tsv", "az", "en")


def test_each_language_may_have_its_own_files(tmp_path):
    for name in ("x", "y"):
        write(tmp_path / f"{name}.tsv", f"{name}\tone\n")
    own = {"az": f"{tmp_path}/x.tsv", "tr": [f"{tmp_path}/x.tsv", f"{tmp_path}/y.tsv"]}
    corpus = open_corpus(config(tmp_path, (), train=own, dev=own, test=own), tmp_path)
    assert list(corpus) == ["az", "tr"]
    assert list(corpus["tr"]["train"].read()) == [("x", "one"), ("y", "one")]
    with pytest.raises(ValueError, match="no train text for language 'ru'; add it under 'train'"):
        open_corpus(config(tmp_path, ("az", "tr", "ru"), train=own, dev=own, test=own), tmp_path)


def test_one_language_needs_no_place_for_its_name_and_a_side_is_one(tmp_path):
    assert config(tmp_path, ("az",), train="t.tsv").train == "t.tsv"
    assert config(tmp_path, ("az", "tr"), train="t.{side}").train == "t.{side}"


def test_files_need_a_list_of_languages(tmp_path):
    with pytest.raises(ValueError, match=r"no languages; list them"):
        open_corpus(config(tmp_path, ()), tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dev": None}, "no dev text; give 'dev' a pattern .*, or write hold_out: 200"),
        ({"train": None, "hold_out": 9}, r"no train text; give 'train' a pattern such as \S+ \["),
        ({"languages": ("az", "az")}, "'az' is listed twice"),
        ({"languages": ("az", "en")}, "'en' cannot be a source language"),
        ({"languages": ("mixed",)}, "'mixed' cannot be a source language"),
        ({"languages": ("a/z",)}, "'a/z' is not a language code"),
        ({"languages": (), "train": {"a/z": "t.tsv"}}, "'a/z' is not a language code"),
        ({"languages": (), "train": {"mixed": "t.tsv"}}, "'mixed' cannot be a source language"),
        ({"languages": (), "train": {"en": "t.tsv"}}, "'en' cannot be a source language"),
        ({"dev": {"az": "t.tsv", "a b": "t.tsv"}}, "'a b' is not a language code"),
        ({"languages": (), "train": {"az": "t"}, "low_resource": ("ax",)}, "unknown low-resource language 'ax'"),
        ({"low_resource": ("ax",)}, "unknown low-resource language 'ax'; did you mean 'az'"),
        ({"languages": ("az", "tr"), "train": "t.tsv"}, "'t.tsv' is the same file for all 2 languages"),
        ({"languages": ("az", "tr"), "test": ["{language}.tsv", "t.tsv"]}, "'t.tsv' is the same file for all 2"),
        ({"languages": (), "train": {"az": "a", "tr": "b", "ru": "c"}, "dev": "t.tsv"}, "the same file for all 3 lang"),
        ({"path": "ted"}, "'path' is for corpus: ted8"),
        ({"corpus": "catalogues"}, "'train' is for corpus: files"),
        (
            {"corpus": "catalogues", "train": None, "dev": None, "test": None, "hold_out": 9},
            "'hold_out' is for corpus",
        ),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(tmp_path, changes, message):
    with pytest.raises(ValidationError, match=message):
        config(tmp_path, **changes)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a/z", "'a/z' is not a language code"),
        ("mixed-high-resource", "'mixed-high-resource' cannot be a source language"),
        ("en", "'en' cannot be a source language"),
    ],
)
def test_the_languages_of_a_family_are_checked_as_those_of_a_list(name, message):
    with pytest.raises(ValidationError, match=message):
        CorpusConfig.model_validate({"corpus": "synthetic", "synthetic": {"families": {"k": {"ka": 9, name: 9}}}})


def test_a_generated_language_that_is_not_there_cannot_be_low_resource():
    with pytest.raises(ValidationError, match="unknown low-resource language 'xx'; known: "):
        CorpusConfig.model_validate({"corpus": "synthetic", "low_resource": ["xx"]})


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"corpus": "synthetic", "languages": ["lale"]}, "unknown language 'lale'; did you mean 'lala'"),
        ({"corpus": "catalogues", "languages": ["xx"]}, "unknown language 'xx'; known: az, be, gl, sk, tr, ru, pt, cs"),
        ({"corpus": "catalogues", "target": "de"}, "target 'de'; the corpus 'catalogues' translates into 'en' only"),
    ],
)
def test_an_unknown_language_is_noticed_before_anything_is_fetched(tmp_path, block, message):
    with pytest.raises(ValueError, match=message) as error:
        open_corpus(CorpusConfig.model_validate(block), tmp_path)
    one_line(error)
    assert list(tmp_path.iterdir()) == []


def test_a_fifth_of_the_largest_language_is_the_border_of_low_resource(tmp_path):
    sizes = {"az": 19, "tr": 100, "sk": 20}
    assert low_resource(config(tmp_path, ("az", "tr", "sk")), sizes) == ("az",)


def test_the_config_may_say_which_languages_are_low_resource(tmp_path):
    told = config(tmp_path, ("az", "tr"), low_resource=("tr",))
    assert low_resource(told, {"az": 1, "tr": 100}) == ("tr",)


def test_named_corpora_know_their_low_resource_languages():
    sizes = dict.fromkeys(("az", "be", "gl", "sk", "tr", "ru", "pt", "cs"), 100)
    assert low_resource(CorpusConfig(corpus="catalogues"), sizes) == ("az", "be", "gl", "sk")
    synthetic = {"corpus": "synthetic", "synthetic": {"families": {"k": {"ka": 100, "ke": 19}, "l": {"la": 10}}}}
    assert low_resource(CorpusConfig.model_validate(synthetic), {"ka": 100, "ke": 19, "la": 10}) == ("ke",)


def test_the_corpus_is_a_plain_mapping(tmp_path):
    splits: tuple[Split, ...] = ("train", "dev", "test")
    for split in splits:
        write(tmp_path / f"{split}.az.tsv", f"{split}\tone\n")
    corpus = open_corpus(config(tmp_path), tmp_path)
    assert {split: list(text.read()) for split, text in corpus["az"].items()} == {s: [(s, "one")] for s in splits}
    assert all(isinstance(text, ParallelText) for text in corpus["az"].values())
