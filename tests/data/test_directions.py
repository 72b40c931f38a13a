"""Text in several directions: names, tags, leaks, and pairs without the pivot."""

import numpy as np
import pytest
from pydantic import ValidationError
from small_corpus import run, sentences, write_corpus

from rota.api import classroom_of
from rota.config import RunConfig
from rota.data.corpora import sources
from rota.data.corpora.directions import directed_routes, resolved
from rota.data.corpora.language_files import warn_of_unused
from rota.data.corpora.parallel import SPLITS
from rota.data.corpora.sources import CorpusConfig, open_corpus
from rota.data.division import teacher_part
from rota.data.preparation.cleaning import Cleaner, CleaningConfig
from rota.data.preparation.mess import ArmMess, MessConfig
from rota.data.subwords import EOS
from rota.settings import explain
from rota.types import Route


def write_parallel(folder, languages=("az", "tr", "en"), pattern="{split}.{language}"):
    """The same sentences in every language: in capitals, with spaces between letters reversed, plain."""
    folder.mkdir(exist_ok=True)
    forms = {"az": str.upper, "tr": str.title, "en": str}
    for seed, (split, count) in enumerate({"train": 40, "dev": 6, "test": 5}.items(), start=50):
        for language in languages:
            lines = "".join(f"{forms[language](text)}\n" for text in sentences(count, seed))
            (folder / pattern.format(split=split, language=language)).write_text(lines)
    return folder


def directed(tmp_path, directions="both-ways", **changes):
    return write_corpus(tmp_path / "text", directions=directions, **changes)


def first_tokens(store, split, name, side):
    part = store.split(split)
    flat = getattr(part, side)
    return {int(flat.tokens[flat.offsets[index]]) for index in range(*part.range(name))}


@pytest.mark.parametrize(
    ("written", "languages", "pairs"),
    [
        ("both-ways", ("az", "tr"), [("az", "en"), ("en", "az"), ("tr", "en"), ("en", "tr")]),
        (("az-en", "az-tr"), ("az", "tr"), [("az", "en"), ("az", "tr")]),
        (("zh-Hant-en", "en-zh-Hant"), ("zh-Hant",), [("zh-Hant", "en"), ("en", "zh-Hant")]),
        (("gl-en",), (), [("gl", "en")]),
        (("*-en", "en-tr"), ("az", "tr"), [("az", "en"), ("tr", "en"), ("en", "tr")]),
        (("en-*", "az-tr"), ("az", "tr"), [("en", "az"), ("en", "tr"), ("az", "tr")]),
        (("tr-en", "*-en"), ("az", "tr"), [("tr", "en"), ("az", "en")]),
        (("*-en", "az-en"), ("az", "tr"), [("tr", "en"), ("az", "en")]),
        (("zh-Hant-*",), ("zh-Hant", "az"), [("zh-Hant", "az"), ("zh-Hant", "en")]),
        (("*-*",), ("az",), [("az", "en"), ("en", "az")]),
    ],
)
def test_directions_are_read(written, languages, pairs):
    assert resolved(written, languages, "en") == tuple(pairs)


@pytest.mark.parametrize("written", ["azen", "az-ru", "az-az", "a-b-c"])
def test_what_is_no_direction_is_refused(written):
    with pytest.raises(ValueError, match=f"{written!r} is not a direction between two languages"):
        resolved((written,), ("az", "tr"), "en")


@pytest.mark.parametrize(
    ("directions", "message"),
    [((), "'directions' is empty"), (("az-en", "az-en"), "the direction 'az-en' is listed twice")],
)
def test_mistakes_are_named(tmp_path, directions, message):
    with pytest.raises(ValidationError) as found:
        directed(tmp_path, directions)
    assert message in explain(found.value, CorpusConfig)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"directions": ("tr-en",)}, "'low_resource' names 'az', which is in no direction; remove it there"),
        ({"only_measured": ("az",)}, "'low_resource' names 'az', which is in 'only_measured' and not trained on"),
    ],
)
def test_a_low_resource_language_that_is_not_trained_on_is_refused_before_anything_is_read(changes, message):
    files = {split: f"no/such/{split}.{{language}}.tsv" for split in ("train", "dev", "test")}
    with pytest.raises(ValidationError) as found:
        CorpusConfig(languages=("az", "tr"), low_resource=("az",), **files, **changes)
    assert message in explain(found.value, CorpusConfig)


@pytest.mark.parametrize(
    "written", [("xx-*",), ("*-en", "*-en"), ("az-en", "tr-en", "*-en"), ("a*-en",), ("*",), ("*-en-*",)]
)
def test_a_star_that_adds_nothing_is_refused(written):
    with pytest.raises(ValueError, match=r"matches no further direction between two languages of az, tr, en|is not a"):
        resolved(written, ("az", "tr"), "en")


def test_names_of_languages_may_have_hyphens(tmp_path):
    files = {split: f"{tmp_path}/{split}.{{language}}.tsv" for split in ("train", "dev", "test")}
    config = CorpusConfig(languages=("gl", "pt-br"), directions=("pt-br-en", "en-pt-br", "gl-en"), **files)
    assert config.pairs == (("pt-br", "en"), ("en", "pt-br"), ("gl", "en"))
    by_key = {split: {"gl": pattern, "pt-br": pattern} for split, pattern in files.items()}
    assert CorpusConfig(directions=("en-pt-br",), **by_key).pairs == (("en", "pt-br"),)
    with pytest.raises(ValidationError, match="'pt-br-en' may be pt into br-en or pt-br into en; list the languages"):
        CorpusConfig(directions=("pt-br-en",), **{split: f"{split}.{{side}}" for split in files})


def test_a_direction_that_no_listed_language_has_is_refused_with_those_that_are_listed(tmp_path):
    with pytest.raises(ValidationError, match="'gl-en' is not a direction between two languages of az, en, tr"):
        directed(tmp_path, ("az-en", "gl-en"))


def test_a_star_needs_the_languages():
    with pytest.raises(ValidationError, match=r"the star in '\*-en' needs the languages; list them"):
        CorpusConfig(directions=("*-en", "en-gl"), train="train.{side}", dev="dev.{side}", test="test.{side}")


def test_all_into_english_and_one_out_of_it_in_short(tmp_path):
    store = run(directed(tmp_path, ("*-en", "en-az")), tmp_path / "data")
    assert store.languages == ("az-en", "tr-en", "en-az")
    whole = run(directed(tmp_path, ("az-en", "tr-en", "en-az")), tmp_path / "whole")
    assert store.fingerprint == whole.fingerprint


def test_both_ways_has_every_language_twice(tmp_path):
    store = run(directed(tmp_path), tmp_path / "data")
    assert store.languages == store.arms == ("az-en", "en-az", "tr-en", "en-tr")
    assert store.sizes["az-en"] == store.sizes["en-az"] == 30
    assert store.route("en-az") == Route("en", "az", "en-az")
    assert store.low_resource == ("az-en", "en-az")
    assert store.text("test", "en-az") == [(english, source) for source, english in store.text("test", "az-en")]
    assert (store.folder / "text" / "test.en-az.az").is_file()


def test_the_routes_are_not_made_again_for_every_direction(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(sources, "directed_routes", lambda *args: made.append(args) or directed_routes(*args))
    counts = []
    for number in (2, 12):
        languages = tuple(f"l{place}" for place in range(number))
        files = dict.fromkeys(("train", "dev", "test"), f"{tmp_path}/{{language}}.tsv")
        for language in languages:
            (tmp_path / f"{language}.tsv").write_text("sea\tsky\n")
        made.clear()
        open_corpus(CorpusConfig(languages=languages, directions="both-ways", **files), tmp_path)
        counts.append(len(made))
    assert counts[0] == counts[1], "with 200 languages both ways it took four seconds"


def test_sources_begin_with_the_tag_of_their_language_and_targets_with_that_of_theirs(tmp_path):
    store = run(directed(tmp_path), tmp_path / "data")
    tag = store.subwords.tag
    assert store.subwords.languages == ["az", "en", "tr"]
    for name, source, target in (("az-en", "az", "en"), ("en-tr", "en", "tr")):
        for split in ("train", "dev", "test"):
            assert first_tokens(store, split, name, "source") == {tag(source)}
            assert first_tokens(store, split, name, "target") == {tag(target)}
    _, english = store.text("dev", "az-en")[0]
    dev = store.split("dev")
    tokens, _ = dev.target.gather(np.array([dev.range("az-en")[0]]))
    assert tokens[0] == tag("en")
    assert tokens[-1] == EOS
    assert store.subwords.decode(tokens) == english


def test_into_one_language_alone_the_tokens_are_as_without_directions(tmp_path):
    plain = run(write_corpus(tmp_path / "text"), tmp_path / "plain")
    named = run(directed(tmp_path, ("az-en", "tr-en")), tmp_path / "named")
    assert named.languages == ("az-en", "tr-en")
    for name in ("train.source.tokens", "train.target.tokens", "dev.target.offsets", "subwords.json"):
        assert (plain.folder / name).read_bytes() == (named.folder / name).read_bytes()


def test_a_sentence_is_in_the_same_part_of_the_dev_sets_of_both_directions(tmp_path):
    dev = run(directed(tmp_path), tmp_path / "data").split("dev")
    parts = [teacher_part(dev, name, 0.5, "text").tolist() for name in ("tr-en", "en-tr")]
    assert parts[0] == parts[1]
    assert 0 < len(parts[0]) < 6


def test_a_training_pair_leaks_if_either_side_is_held_out():
    cleaner = Cleaner(CleaningConfig(leak_words=2), either_side=True)
    list(cleaner.clean_held_out([("a held out source", "a held out target")]))
    guard = cleaner.held_out
    pairs = [
        ("a held out source", "another text here"),
        ("another text here", "A held OUT source"),
        ("a held out target", "one more text"),
        ("one more text", "a held out target"),
        ("fine", "fine too"),
    ]
    either = Cleaner(CleaningConfig(leak_words=2), guard, either_side=True)
    assert list(either.clean_train(pairs)) == pairs[4:]
    assert either.counts["a side in dev or test"] == 4


def test_pairs_without_the_pivot_are_joined_by_their_translation(tmp_path):
    folder = write_parallel(tmp_path / "text")
    patterns = {split: f"{folder}/{split}.{{side}}" for split in ("train", "dev", "test")}
    named = CorpusConfig(languages=("az", "tr"), directions=("az-tr",), **patterns)
    by_file = [list(open_corpus(named, tmp_path)["az-tr"][split].read()) for split in ("train", "dev")]
    patterns = {split: dict.fromkeys(("az", "tr"), f"{folder}/{split}.{{side}}") for split in patterns}
    joined = CorpusConfig(languages=("az", "tr"), directions=("az-tr", "tr-en"), **patterns)
    corpus = open_corpus(joined, tmp_path)
    assert list(corpus) == ["az-tr", "tr-en"]
    assert [list(corpus["az-tr"][split].read()) for split in ("train", "dev")] == by_file
    assert by_file[1][0] == (sentences(6, 51)[0].upper(), sentences(6, 51)[0].title())


def test_sentences_without_a_translation_are_not_joined(tmp_path):
    """An empty line says that a translation is missing; two of them are not translations of each other."""
    lines = {"az": ["A\t", "\tone", "B\tone", "C\ttwo"], "tr": ["X\t", "\ttwo", "Y\tone", "Z\ttwo"]}
    for language, pairs in lines.items():
        (tmp_path / f"{language}.tsv").write_text("".join(f"{pair}\n" for pair in pairs))
    config = CorpusConfig(
        languages=("az", "tr"), directions=("az-tr",), **dict.fromkeys(SPLITS, f"{tmp_path}/{{language}}.tsv")
    )
    assert list(open_corpus(config, tmp_path)["az-tr"]["train"].read()) == [("B", "Y"), ("C", "Z")]


def test_files_of_two_languages_need_no_pivot_at_all(tmp_path):
    folder = write_parallel(tmp_path / "text", ("az", "tr"))
    patterns = {split: f"{folder}/{split}.{{side}}" for split in ("train", "dev", "test")}
    store = run(CorpusConfig(directions=("az-tr", "tr-az"), **patterns), tmp_path / "data")
    assert store.languages == ("az-tr", "tr-az")
    assert store.subwords.languages == ["az", "tr"]


def test_patterns_may_name_source_and_target_in_either_order(tmp_path):
    folder = tmp_path / "text"
    for pair in ("az-en", "tr-az"):
        (folder / pair).mkdir(parents=True)
    for split in ("train", "dev", "test"):
        for pair in ("az-en", "tr-az"):
            for side in pair.split("-"):
                (folder / pair / f"{split}.{side}").write_text(f"{split} {side}\n")
    patterns = {split: f"{folder}/{{source}}-{{target}}/{split}.{{side}}" for split in ("train", "dev", "test")}
    config = CorpusConfig(languages=("az", "tr"), directions=("en-az", "az-tr"), **patterns)
    corpus = open_corpus(config, tmp_path)
    assert list(corpus["en-az"]["dev"].read()) == [("dev en", "dev az")]
    assert list(corpus["az-tr"]["dev"].read()) == [("dev az", "dev tr")]


def test_an_unknown_field_of_a_pattern_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"has \{sides\}; only \{language\}, \{side\}, \{source\} and \{target\}"):
        open_corpus(CorpusConfig(languages=("az",), train="a.{sides}", dev="b", test="c"), tmp_path)


def test_sources_are_arms_of_both_directions(tmp_path):
    sources = {"tr-2": {"language": "tr", "take": 0.5}}
    store = run(directed(tmp_path, ("tr-en", "en-tr", "az-en"), sources=sources), tmp_path / "data")
    assert store.arms == ("tr-en", "tr-en.tr-2", "en-tr", "en-tr.tr-2", "az-en")
    assert store.languages == ("tr-en", "en-tr", "az-en")
    assert store.language_of["en-tr.tr-2"] == "en-tr"
    assert store.sizes["tr-en.tr-2"] == store.sizes["en-tr.tr-2"]


def test_languages_and_sources_in_no_direction_are_said(tmp_path, caplog):
    made = {f"{language}-web": {"language": language, "take": 0.5} for language in ("az", "tr")}
    run(directed(tmp_path, ("az-en",), sources=made), tmp_path / "data")
    assert "no text of tr, tr-web is used: add a direction to data.directions, or remove it" in caplog.text


def test_what_is_joined_or_listed_nowhere_is_used_or_not_meant(tmp_path, caplog):
    made = {"tr-web": {"language": "tr", "take": 0.5}}
    for config in (
        directed(tmp_path, sources=made),
        directed(tmp_path, ("az-tr",), sources=made),
        CorpusConfig(corpus="ted8", directions=("az-en",)),
    ):
        warn_of_unused(config)
    assert not caplog.messages


def in_files(folder):
    """The patterns of a corpus by split and language."""
    files = {split: f"{folder}/{split}.{{language}}.{{side}}" for split in ("train", "dev", "test")}
    return files, {split: dict.fromkeys(("az", "tr"), pattern) for split, pattern in files.items()}


def test_a_misspelt_key_of_a_mapping_is_refused(tmp_path):
    write_corpus(tmp_path / "text")
    _, mappings = in_files(tmp_path / "text")
    mappings["dev"]["trr"] = "dev.tsv"
    with pytest.raises(ValueError, match="unknown key under 'dev': 'trr'; did you mean 'tr'[?] known: az, tr"):
        open_corpus(CorpusConfig(languages=("az", "tr"), **mappings), tmp_path)
    with pytest.raises(
        ValueError, match="unknown key under 'dev': 'trr'; did you mean 'tr'[?] known: az, tr, az-en, tr"
    ):
        open_corpus(CorpusConfig(directions=("az-en", "tr-en"), **mappings), tmp_path)
    mappings["dev"] = {"az-tr": "dev.tsv", **mappings["train"]}
    with pytest.raises(ValueError, match="'az-tr' under 'dev' is not among the 'directions'; add it there"):
        open_corpus(CorpusConfig(languages=("az", "tr"), directions=("az-en", "tr-en"), **mappings), tmp_path)


@pytest.mark.parametrize("languages", [("az", "tr"), ()])
def test_a_direction_may_have_text_of_its_own_under_its_name(tmp_path, languages):
    write_corpus(tmp_path / "text")
    folder = write_parallel(tmp_path / "parallel")
    _, mappings = in_files(tmp_path / "text")
    (tmp_path / "en-az.tsv").write_text("only this way\tNUR SO\n")
    mappings["train"] |= {"az-tr": f"{folder}/train.{{side}}", "en-az": f"{tmp_path}/en-az.tsv"}
    mappings |= {split: {**mappings[split], "az-tr": f"{folder}/{split}.{{side}}"} for split in ("dev", "test")}
    corpus = open_corpus(
        CorpusConfig(languages=languages, directions=("az-en", "en-az", "tr-en", "az-tr"), **mappings), tmp_path
    )
    assert list(corpus) == ["az-en", "en-az", "tr-en", "az-tr"]
    assert list(corpus["en-az"]["train"].read()) == [("only this way", "NUR SO")]
    assert len(list(corpus["en-az"]["dev"].read())) == 5
    assert len(list(corpus["az-en"]["train"].read())) == 30
    for split, seed, count in (("train", 50, 40), ("dev", 51, 6)):
        first = sentences(count, seed)[0]
        assert next(corpus["az-tr"][split].read()) == (first.upper(), first.title())


def test_a_direction_with_text_of_its_own_needs_none_of_its_languages(tmp_path):
    write_corpus(tmp_path / "text")
    folder = write_parallel(tmp_path / "parallel", ("tr", "az"))
    files, _ = in_files(tmp_path / "text")
    mappings = {split: {"az": files[split], "tr-az": f"{folder}/{split}.{{side}}"} for split in files}
    corpus = open_corpus(CorpusConfig(directions=("az-en", "tr-az"), **mappings), tmp_path)
    assert all(splits.keys() == {"train", "dev", "test"} for splits in corpus.values())
    mappings["dev"] = f"{folder}/dev.{{side}}"
    mappings["train"]["az-en"] = f"{tmp_path}/text/train.az.{{side}}"
    (folder / "dev.en").write_text("\n".join(sentences(6, 51)))
    corpus = open_corpus(CorpusConfig(languages=("az", "tr"), directions=("az-en", "tr-az"), **mappings), tmp_path)
    assert next(corpus["tr-az"]["dev"].read()) == (sentences(6, 51)[0].title(), sentences(6, 51)[0].upper())


def test_sources_and_directions_together(tmp_path):
    write_corpus(tmp_path / "text")
    folder = write_parallel(tmp_path / "parallel")
    files, _ = in_files(tmp_path / "text")
    tsv = tmp_path / "az-tr.tsv"
    tsv.write_text(
        "".join(f"{text.upper()}\t{text.title()}\t{number % 2}\n" for number, text in enumerate(sentences(20, 60)))
    )
    sources = {
        "ted": {"language": "az", "train": f"{folder}/train.{{side}}"},
        "web": {"direction": "az-tr", "train": f"{folder}/train.{{side}}", "at_most": 7},
        "crawl": {"direction": "az-tr", "train": str(tsv), "split_by": {"column": 3, "values": ["0", "1"]}},
        "back": {"direction": "en-az", "train": f"{folder}/train.{{side}}"},
    }
    config = CorpusConfig(
        languages=("az", "tr"),
        directions=("az-en", "en-az", "tr-en", "az-tr"),
        train={"tr": files["train"]},
        dev={"az": files["dev"], "tr": files["dev"], "az-tr": f"{folder}/dev.{{side}}"},
        test={"az": files["test"], "tr": files["test"], "az-tr": f"{folder}/test.{{side}}"},
        sources=sources,
    )
    store = run(config, tmp_path / "data", cleaning=CleaningConfig(leak_words=30))
    assert store.arms == (
        "az-en.ted",
        *("en-az.ted", "en-az.back"),
        "tr-en",
        *("az-tr.web", "az-tr.crawl.0", "az-tr.crawl.1"),
    )
    assert store.languages == ("az-en", "en-az", "tr-en", "az-tr")
    assert store.sizes["az-tr.web"] == 7
    assert store.sizes["az-tr.crawl.0"] == 10
    assert store.route("az-tr.crawl.1") == Route("az", "tr", "az-tr")
    assert store.text("dev", "az-tr")[0] == (sentences(6, 51)[0].upper(), sentences(6, 51)[0].title())
    assert first_tokens(store, "train", "az-tr.crawl.1", "target") == {store.subwords.tag("tr")}
    assert first_tokens(store, "train", "en-az.back", "source") == {store.subwords.tag("en")}


def test_names_of_sources_and_languages_stand_for_their_arms(tmp_path):
    sources = {
        "web": {"language": "az", "train": "web.tsv", "split_by": {"column": 3, "values": ["a", "b"]}},
        "ted": {"direction": "az-tr", "train": "ted.tsv"},
    }
    config = directed(tmp_path, ("az-en", "en-az", "az-tr"), sources=sources)
    arms = ["az-en.web.a", "az-en.web.b", "en-az", "en-az.web.a", "az-tr.ted"]
    groups = config.groups(config.routes(arms))
    assert groups["web"] == ("az-en.web.a", "az-en.web.b", "en-az.web.a")
    assert groups["web.a"] == ("az-en.web.a", "en-az.web.a")
    assert groups["ted"] == groups["tr"] == ("az-tr.ted",)
    assert groups["az"] == tuple(arms)
    plain = directed(tmp_path, None, sources={"web": sources["web"]})
    assert plain.groups(plain.routes(["az", "web.a", "web.b", "tr"])) == {"web": ("web.a", "web.b")}


def test_shares_of_a_run_may_name_a_source(tmp_path):
    corpus = directed(tmp_path, sources={"half": {"language": "tr", "take": 0.5}})
    classroom = classroom_of(RunConfig(data=corpus.model_dump()), run(corpus, tmp_path / "data"))
    assert classroom.spread({"half": 1, "az": 1}) == {
        **dict.fromkeys(("tr-en.half", "en-tr.half"), 0.5),
        **dict.fromkeys(("az-en", "en-az"), 0.5),
    }


def test_a_source_with_the_name_of_its_direction_is_that_arm(tmp_path):
    write_corpus(tmp_path / "text")
    folder = write_parallel(tmp_path / "parallel")
    files, _ = in_files(tmp_path / "text")
    own = {split: f"{folder}/{split}.{{side}}" for split in ("train", "dev", "test")}
    sources = {"az-tr": {"direction": "az-tr", **own}}
    config = CorpusConfig(languages=("az", "tr"), directions=("az-en", "az-tr"), sources=sources, **files)
    corpus = open_corpus(config, tmp_path)
    assert list(corpus) == ["az-en", "az-tr"]
    assert next(corpus["az-tr"]["dev"].read()) == (sentences(6, 51)[0].upper(), sentences(6, 51)[0].title())
    with pytest.raises(ValidationError, match="'az-en' is a direction with text of its own and also a source"):
        CorpusConfig(
            languages=("az",), directions=("az-en",), **files, sources={"az-en": {"direction": "az-en", **own}}
        )


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"direction": "tr-az", "train": "a"}, "'tr-az', which 'directions' does not list; add it there"),
        ({"direction": "az-ru", "train": "a"}, "'az-ru' is not a direction between two languages of az, en, tr"),
        ({"direction": "az-tr", "language": "az", "train": "a"}, "a direction; here is both"),
        ({"train": "a"}, "a source has a language or, for text of one direction, a direction; here is neither"),
        ({"direction": "az-tr", "take": 0.5}, "'take' is of a language; a source of a direction has files"),
    ],
)
def test_mistakes_in_the_source_of_a_direction_are_named(tmp_path, source, message):
    with pytest.raises(ValidationError) as found:
        directed(tmp_path, ("az-en", "az-tr"), sources={"web": source})
    assert message in explain(found.value, CorpusConfig)


def test_languages_that_have_only_sources_are_joined_with_all_of_them(tmp_path):
    write_corpus(tmp_path / "text")
    files, mappings = in_files(tmp_path / "text")
    folder = write_parallel(tmp_path / "parallel")
    sources = {"az-web": {"language": "az", "train": files["train"]}} | {
        f"{language}-ted": {"language": language, "train": f"{folder}/train.{{side}}", "at_most": 9}
        for language in ("az", "tr")
    }
    own = {split: f"{folder}/{split}.{{side}}" for split in ("dev", "test")}
    config = CorpusConfig(languages=("az", "tr"), sources=sources, directions=("az-tr", "tr-en"), **own)
    corpus = open_corpus(config, tmp_path)
    assert list(corpus) == ["az-tr", "tr-en", "tr-en.tr-ted"]
    assert list(corpus["az-tr"]["train"].read()) == [(text.upper(), text.title()) for text in sentences(40, 50)[:9]]
    config = CorpusConfig(languages=("az", "tr"), directions=("az-tr",), **mappings)
    with pytest.raises(
        ValueError,
        match="no two sentences have the same translation; give 'train' text of these two languages "
        "under the key 'az-tr', or write a source with direction: az-tr",
    ):
        list(open_corpus(config, tmp_path)["az-tr"]["train"].read())


@pytest.mark.parametrize("in_sources", [False, True])
def test_joined_training_text_may_have_dev_and_test_sets_of_its_own(tmp_path, in_sources):
    folder = write_parallel(tmp_path)
    config = {split: {"az-tr": f"{folder}/{split}.{{side}}"} for split in ("dev", "test")}
    if in_sources:
        config["sources"] = {
            f"{language}-web": {"language": language, "train": f"{folder}/train.{{side}}"} for language in ("az", "tr")
        }
    else:
        config["train"] = dict.fromkeys(("az", "tr"), f"{folder}/train.{{side}}")
    corpus = open_corpus(CorpusConfig(languages=("az", "tr"), directions=("az-tr",), **config), tmp_path)
    assert list(corpus) == ["az-tr"]
    for split, seed, count in (("train", 50, 40), ("dev", 51, 6), ("test", 52, 5)):
        expected = [(text.upper(), text.title()) for text in sentences(count, seed)]
        assert list(corpus["az-tr"][split].read()) == expected


def test_without_text_to_hold_out_of_the_language_that_lacks_a_dev_set_is_named(tmp_path):
    folder = write_parallel(tmp_path)
    train = dict.fromkeys(("az", "tr-az"), f"{folder}/train.{{side}}")
    config = CorpusConfig(languages=("az", "tr"), directions=("az-en", "tr-az"), train=train, hold_out=5)
    with pytest.raises(ValueError, match="no dev text for language 'tr'; add it under 'dev'"):
        open_corpus(config, tmp_path)


def test_a_direction_without_text_is_named(tmp_path):
    write_corpus(tmp_path / "text")
    files, mappings = in_files(tmp_path / "text")
    back = {"back": {"direction": "en-az", "train": files["train"]}}
    mappings["train"] = {"tr": files["train"]}
    config = CorpusConfig(languages=("az", "tr"), directions=("tr-az",), **mappings)
    with pytest.raises(ValueError, match="no train text for language 'az'"):
        open_corpus(config, tmp_path)
    config = CorpusConfig(languages=("az",), directions=("en-az",), sources=back, train={}, dev={}, test={})
    with pytest.raises(ValueError, match="no dev text for language 'az'"):
        open_corpus(config, tmp_path)


def test_copies_have_the_tag_of_the_target(tmp_path):
    mess = MessConfig(arms={"az-en": ArmMess(copies=1.0)})
    store = run(directed(tmp_path), tmp_path / "data", mess=mess)
    train, tag = store.split("train"), store.subwords.tag
    index = np.array([train.range("az-en")[0]])
    (source, _), (target, _) = train.source.gather(index), train.target.gather(index)
    assert target[0] == tag("en")
    assert source[0] == tag("az")
    assert source[1:].tolist() == target[1:].tolist()


def test_subwords_count_a_pair_of_languages_once(tmp_path):
    both = run(directed(tmp_path), tmp_path / "both").subwords
    one = run(write_corpus(tmp_path / "text"), tmp_path / "one").subwords
    assert both.vocabulary == one.vocabulary, "one tag more leaves one subword less of a given size"
    text = "sea sky hill road"
    assert both.decode(both.encode_targets([text], "en")[0]) == text
    with pytest.raises(ValueError, match="say into which one with --to"):
        both.target_tag(None, ("en", "az"))
    with pytest.raises(ValueError, match="does not translate into 'ru'; it does into en, az"):
        both.target_tag("ru", ("en", "az"))
    assert both.target_tag(None, ("en",)) is None
    assert both.target_tag("az", ("en", "az")) == both.tag("az")
