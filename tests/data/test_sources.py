"""Several training texts of a language, each an arm."""

import numpy as np
import pytest
from pydantic import ValidationError
from small_corpus import run, sentences, write_corpus

from rota.data.corpora.arms import SourceConfig
from rota.data.corpora.parallel import having
from rota.data.corpora.sources import CorpusConfig, open_corpus
from rota.data.preparation.cleaning import KEPT
from rota.data.preparation.mess import ArmMess, MessConfig
from rota.settings import explain
from rota.types import Route


def write_tsv(path, english, columns=()):
    """The source is the English in capitals; ``columns`` gives the further values of each line."""
    lines = [
        "\t".join([text.upper(), text, *map(str, more)])
        for text, more in zip(english, columns or [()] * len(english), strict=True)
    ]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def with_sources(tmp_path, sources, **changes):
    return write_corpus(tmp_path / "text", sources=sources, **changes)


def texts(corpus, tmp_path, arm):
    return [english for _, english in open_corpus(corpus, tmp_path / "cache")[arm]["train"].read()]


@pytest.fixture
def web(tmp_path):
    return write_tsv(tmp_path / "web.tsv", sentences(40, seed=7))


@pytest.fixture
def two(tmp_path, web):
    """The language az with its own text and a source beside it; tr as ever."""
    return with_sources(tmp_path, {"az-web": {"language": "az", "train": web}})


def test_a_source_is_an_arm_beside_its_language(two, tmp_path):
    store = run(two, tmp_path / "data")
    assert store.languages == ("az", "tr")
    assert store.arms == ("az", "az-web", "tr")
    assert dict(store.sizes) == {"az": 30, "az-web": 40, "tr": 80}
    assert dict(store.language_sizes) == {"az": 70, "tr": 80}
    assert dict(store.language_of) == {"az": "az", "az-web": "az", "tr": "tr"}
    assert store.low_resource == ("az",)
    assert store.low_resource_arms == ("az", "az-web")
    assert store.high_resource == ("tr",)
    assert set(store.split("dev").ranges) == {"az", "tr"}, "dev sets stay with the language"


def test_an_arm_has_the_tag_of_its_language(two, tmp_path):
    store = run(two, tmp_path / "data")
    train = store.split("train")
    for arm, language in store.language_of.items():
        first = train.source.tokens[train.source.offsets[train.range(arm)[0]]]
        assert first == store.subwords.tag(language)
    with pytest.raises(ValueError, match="unknown language 'az-web'"):
        store.subwords.tag("az-web")


def test_without_sources_manifest_and_settings_are_as_they_were(corpus, tmp_path):
    store = run(corpus, tmp_path / "data")
    assert "routes" not in store.manifest.model_dump(mode="json")
    assert "sources" not in store.manifest.settings["corpus"]
    assert store.route("az") == Route("az", "en", "az")
    assert store.arms == store.languages


def test_sources_alone_need_no_training_text_of_their_own(tmp_path, web):
    base = write_corpus(tmp_path / "text")
    other = write_tsv(tmp_path / "other.tsv", sentences(20, seed=8))
    config = CorpusConfig(
        train={"tr": base.train},
        dev=base.dev,
        test=base.test,
        sources={"az-web": {"language": "az", "train": web}, "az-other": {"language": "az", "train": other}},
    )
    store = run(config, tmp_path / "data")
    assert store.languages == ("tr", "az")
    assert store.arms == ("tr", "az-web", "az-other")


def test_at_most_counts_the_pairs_that_cleaning_keeps(tmp_path):
    english = ["", *sentences(30, seed=7)]
    source = {"language": "az", "train": write_tsv(tmp_path / "web.tsv", english), "at_most": 12}
    store = run(with_sources(tmp_path, {"az-web": source}), tmp_path / "data")
    assert store.sizes["az-web"] == 12
    assert store.manifest.cleaning["az-web"]["train"][KEPT] == 12
    assert store.manifest.cleaning["az-web"]["train"]["empty side"] == 1


def test_a_column_of_labels_splits_a_file_into_arms(tmp_path):
    english, labels = sentences(9, seed=7), ["news", "web", "law"] * 3
    path = write_tsv(tmp_path / "all.tsv", english, [[0.5, label] for label in labels])
    source = {"language": "az", "train": path, "split_by": {"column": 4, "values": ["web", "news"]}}
    config = with_sources(tmp_path, {"az-all": source})
    assert having(open_corpus(config, tmp_path), "train") == ["az", "az-all.web", "az-all.news", "tr"]
    assert texts(config, tmp_path, "az-all.news") == english[0::3]
    assert texts(config, tmp_path, "az-all.web") == english[1::3]


def test_bins_may_be_written_as_numbers(tmp_path):
    english = sentences(6, seed=7)
    path = write_tsv(tmp_path / "all.tsv", english, [[number] for number in [1, 2, 3] * 2])
    config = with_sources(
        tmp_path, {"q": {"language": "az", "train": path, "split_by": {"column": 3, "values": [1, 3]}}}
    )
    assert texts(config, tmp_path, "q.3") == english[2::3]
    source = config.sources["q"].model_dump(mode="json")
    assert source["split_by"]["values"] == ["1", "3"]


def test_a_column_of_numbers_gives_arms_of_equal_size_the_lowest_first(tmp_path):
    english = sentences(9, seed=7)
    path = write_tsv(tmp_path / "all.tsv", english, [[score] for score in [9, 1, 8, 2, 7, 3, 6, 4, 5]])
    config = with_sources(tmp_path, {"q": {"language": "az", "train": path, "split_by": {"column": 3, "bins": 3}}})
    by_score = sorted(english, key=lambda text: [9, 1, 8, 2, 7, 3, 6, 4, 5][english.index(text)])
    for number, part in enumerate((by_score[:3], by_score[3:6], by_score[6:]), start=1):
        assert sorted(texts(config, tmp_path, f"q.{number}")) == sorted(part)


def test_edges_divide_where_they_lie(tmp_path):
    english = sentences(4, seed=7)
    path = write_tsv(tmp_path / "all.tsv", english, [[0.1], [0.5], [0.7], [0.9]])
    split = {"column": 3, "edges": [0.5, 0.8]}
    config = with_sources(tmp_path, {"q": {"language": "az", "train": path, "split_by": split}})
    assert [texts(config, tmp_path, f"q.{part}") for part in (1, 2, 3)] == [english[:1], english[1:3], english[3:]]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"column": 3, "values": ["0.5", "news"]}, r"tsv: no line has 'news' in column 3; change split_by\.values"),
        ({"column": 3, "bins": 2}, r"no pair is in part '1' of split_by; many have the same number: use fewer bins"),
        ({"column": 3, "edges": [0.1, 0.9]}, r"no pair is in part '1' of split_by; change edges"),
    ],
)
def test_a_part_that_no_line_is_in_is_an_error_that_says_what_to_change(tmp_path, split, message):
    path = write_tsv(tmp_path / "all.tsv", sentences(4, seed=7), [[0.5]] * 4)
    config = with_sources(tmp_path, {"q": {"language": "az", "train": path, "split_by": split}})
    with pytest.raises(ValueError, match=message):
        run(config, tmp_path / "data")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([["high"]], r"line 1: 'high' is not a number \(a header[?] remove it\)"),
        ([["nan"]], r"line 1: 'nan' is not a number; split_by needs one, or values"),
        ([[]], r"line 1: 2 columns; split_by\.column is 3"),
    ],
)
def test_a_column_that_cannot_be_read_is_named_with_its_line(tmp_path, columns, message):
    path = write_tsv(tmp_path / "all.tsv", sentences(1, seed=7), columns)
    config = with_sources(tmp_path, {"q": {"language": "az", "train": path, "split_by": {"column": 3, "bins": 2}}})
    with pytest.raises(ValueError, match=message):
        texts(config, tmp_path, "q.1")


def test_a_source_can_take_a_share_of_the_languages_own_text(corpus, tmp_path):
    config = with_sources(tmp_path, {"tr-2": {"language": "tr", "take": 0.25}, "tr-3": {"language": "tr", "take": 0.5}})
    parts = [set(texts(config, tmp_path, arm)) for arm in ("tr", "tr-2", "tr-3")]
    assert set.union(*parts) == set(texts(corpus, tmp_path, "tr"))
    assert sum(map(len, parts)) == 80, "no pair is in two arms"
    assert 10 <= len(parts[1]) <= 30 <= len(parts[2]) <= 52


def test_a_source_can_repeat_what_the_language_keeps(corpus, tmp_path):
    config = with_sources(
        tmp_path,
        {
            "tr-copy": {"language": "tr", "duplicate": 1},
            "tr-half": {"language": "tr", "duplicate": 0.5},
            "tr-2": {"language": "tr", "take": 0.5},
        },
    )
    own, copy, half, taken = (set(texts(config, tmp_path, arm)) for arm in ("tr", "tr-copy", "tr-half", "tr-2"))
    assert copy == own
    assert half < own
    assert 10 <= len(half) <= 30, "half of the 40 or so that are left"
    assert not taken & own
    assert taken | own == set(texts(corpus, tmp_path, "tr"))


def test_those_who_take_everything_are_refused(tmp_path):
    config = with_sources(tmp_path, {"tr-2": {"language": "tr", "take": 0.5}, "tr-3": {"language": "tr", "take": 0.5}})
    with pytest.raises(ValueError, match=r"tr-2, tr-3 take 1 of .*; leave the language some of it"):
        open_corpus(config, tmp_path)


def test_mess_is_addressed_to_arms(corpus, tmp_path):
    config = with_sources(tmp_path, {"tr-bad": {"language": "tr", "take": 0.5}})
    mess = MessConfig(arms={"tr-bad": ArmMess(misaligned=1.0)})
    store, clean = run(config, tmp_path / "data", mess=mess), run(config, tmp_path / "clean")
    assert store.manifest.mess == {"tr-bad": {"misaligned": store.sizes["tr-bad"]}}
    bad, good = (clean.split("train").range(arm) for arm in ("tr-bad", "tr"))
    pairs = [each.split("train").target.gather for each in (store, clean)]
    assert list(pairs[0](np.arange(*good))[0]) == list(pairs[1](np.arange(*good))[0])
    assert list(pairs[0](np.arange(*bad))[0]) != list(pairs[1](np.arange(*bad))[0])


def test_foreign_pairs_come_from_other_languages_not_from_other_arms(tmp_path, web):
    config = with_sources(tmp_path, {"az-web": {"language": "az", "train": web}})
    mess = MessConfig(arms={"az-web": ArmMess(foreign=1.0)})
    store = run(config, tmp_path / "data", mess=mess)
    train = store.split("train")
    own, foreign = (
        {tuple(train.target.gather(index[None])[0]) for index in range_of(train, arm)} for arm in ("tr", "az-web")
    )
    assert foreign <= own


def range_of(sentences, arm):
    return np.arange(*sentences.range(arm))


def test_a_source_with_dev_and_test_sets_is_measured_by_them(tmp_path, web):
    held_out = {
        split: write_tsv(tmp_path / f"{split}.tsv", sentences(4, seed)) for split, seed in (("dev", 21), ("test", 22))
    }
    store = run(with_sources(tmp_path, {"az-web": {"language": "az", "train": web, **held_out}}), tmp_path / "data")
    assert store.languages == ("az", "az-web", "tr")
    assert dict(store.language_of) == {"az": "az", "az-web": "az-web", "tr": "tr"}
    assert store.low_resource == ("az", "az-web"), "both are of a low-resource language"
    assert [english for _, english in store.text("test", "az-web")] == sentences(4, 22)
    assert store.route("az-web") == Route("az", "en", "az-web")


def test_english_of_any_dev_set_is_kept_out_of_every_arm(tmp_path):
    base = write_corpus(tmp_path / "text")
    leaked = [english for _, english in open_corpus(base, tmp_path)["tr"]["dev"].read()]
    path = write_tsv(tmp_path / "web.tsv", [*sentences(10, seed=7), *leaked])
    store = run(with_sources(tmp_path, {"az-web": {"language": "az", "train": path}}), tmp_path / "data")
    assert store.manifest.cleaning["az-web"]["train"]["English in dev or test"] == len(leaked)


def test_subwords_are_learned_from_as_many_lines_of_a_language_whatever_its_arms(tmp_path):
    """One text, or the same text in two parts: all of it is sampled, so the vocabulary is the same."""
    whole = run(write_corpus(tmp_path / "text"), tmp_path / "whole")
    parted = run(with_sources(tmp_path, {"tr-2": {"language": "tr", "take": 0.5}}), tmp_path / "parted")
    assert abs(whole.subwords.vocabulary - parted.subwords.vocabulary) <= 5


def test_low_resource_is_a_matter_of_all_arms_of_a_language_together(tmp_path):
    base = write_corpus(tmp_path / "text")
    big = write_tsv(tmp_path / "big.tsv", sentences(200, seed=7))
    config = base.model_copy(
        update={"low_resource": None, "sources": {"az-big": SourceConfig(language="az", train=big)}}
    )
    assert run(config, tmp_path / "data").low_resource == ()
    assert run(base.model_copy(update={"low_resource": None}), tmp_path / "plain").low_resource == ()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"language": "az"}, "duplicate; here is none of them; write for example train: text/web.gl.tsv"),
        (
            {"language": "az", "train": "a", "at_most": 0},
            "at_most is 0, which leaves no text; write 1 or more, or remove",
        ),
        (
            {"language": "az", "train": "a", "split_by": {"column": 1, "bins": 2}},
            "column is 1, and columns 1 and 2 are",
        ),
        ({"language": "az", "take": 0.5, "split_by": {"by": "length", "bins": 1}}, "bins is 1, which divides nothing"),
        ({"language": "az", "train": "a", "take": 0.5}, "here is train and take"),
        ({"language": "az", "train": "a", "dev": "b"}, "brings dev text brings test text too"),
        ({"language": "az", "take": 0.5, "split_by": {"column": 3, "bins": 2}}, "column needs a TSV file"),
        ({"language": "az", "train": "a.{side}", "split_by": {"column": 3, "bins": 2}}, "without {side}"),
        ({"language": "az", "train": "a", "split_by": {"column": 3}}, "give one of values, bins and edges"),
        ({"language": "az", "train": "a", "split_by": {"column": 3, "edges": [2, 1]}}, "edges must rise: 2, 1"),
        ({"language": "az", "train": "a", "split_by": {"column": 3, "values": ["a b"]}}, "'a b' becomes part of a"),
        (
            {"language": "az", "train": "a", "split_by": {"column": 3, "values": [0.5]}},
            "write it in quotes, as it stands in the column: '0.5'",
        ),
        ({"language": "ru", "train": "a"}, "unknown language of the source 'az-web': 'ru'"),
        ({"language": "en", "train": "a"}, "'en' cannot be a source language"),
    ],
)
def test_mistakes_in_a_source_are_named(tmp_path, source, message):
    with pytest.raises(ValidationError) as found:
        with_sources(tmp_path, {"az-web": source})
    assert message in explain(found.value, CorpusConfig)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ({"az web": {"language": "az", "take": 0.5}}, "'az web' is not a name for a source"),
        ({"mixed": {"language": "az", "take": 0.5}}, "mixed batches have that name"),
        ({"en": {"language": "az", "take": 0.5}}, "a source cannot be named 'en': that is the target language"),
        ({"az-en": {"language": "az", "take": 0.5}}, "a source cannot be named 'az-en'"),
        (
            {
                "q": {"language": "az", "train": "a", "split_by": {"column": 3, "bins": 2}},
                "q.1": {"language": "az", "take": 0.5},
            },
            "two sources have an arm 'q.1'",
        ),
    ],
)
def test_names_that_cannot_be_used_are_refused(tmp_path, sources, message):
    with pytest.raises(ValidationError) as found:
        with_sources(tmp_path, sources)
    assert message in explain(found.value, CorpusConfig)


@pytest.mark.parametrize("name", ["az", "tr"])
def test_a_source_cannot_have_the_name_of_a_language_that_has_text(tmp_path, web, name):
    with pytest.raises(ValueError, match=f"{name!r} is a language with text of its own and also a source"):
        open_corpus(with_sources(tmp_path, {name: {"language": "az", "train": web}}), tmp_path)


def test_an_arm_without_a_dev_set_is_refused(tmp_path, web):
    base = write_corpus(tmp_path / "text")
    config = CorpusConfig(
        train={"tr": base.train},
        dev={"tr": base.dev},
        test={"tr": base.test},
        sources={"az-web": {"language": "az", "train": web}},
    )
    with pytest.raises(ValueError, match=r"no dev text for language 'az' \(arm 'az-web'\); add it under 'dev'"):
        open_corpus(config, tmp_path)


def test_taking_from_a_language_without_text_is_refused(tmp_path, web):
    base = write_corpus(tmp_path / "text")
    sources = {"az-web": {"language": "az", "train": web}, "az-2": {"language": "az", "take": 0.5}}
    config = CorpusConfig(train={"tr": base.train}, dev=base.dev, test=base.test, sources=sources)
    with pytest.raises(ValueError, match="az-2 take a share of the language's own text, and it has none"):
        open_corpus(config, tmp_path)


def test_a_named_corpus_can_have_a_source_beside_it(tmp_path, web):
    config = CorpusConfig(
        corpus="synthetic",
        synthetic={"families": {"la": {"lala": 30, "lato": 20}}, "dev": 4, "test": 4},
        sources={"lato-web": {"language": "lato", "train": web}, "lato-2": {"language": "lato", "take": 0.5}},
    )
    store = run(config, tmp_path / "data")
    assert store.arms == ("lala", "lato", "lato-web", "lato-2")
    assert store.sizes["lato"] + store.sizes["lato-2"] == 20
