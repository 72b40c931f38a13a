"""Debian's package descriptions: the true formats, the checksums of the release file, and splits that do not leak."""

import bz2
import hashlib
import lzma

import pytest
from small_corpus import run

from rota.data.corpora import debian, mirrors
from rota.data.corpora.debian import aligned, debian_corpus, descriptions, divide, hold_out, key_of, paragraphs
from rota.data.corpora.mirrors import MirrorUnavailable
from rota.data.corpora.sources import CorpusConfig, low_resource, open_corpus
from rota.data.subwords import SubwordsConfig

ENGLISH = """\
Package: chess-board
Description-md5: 11111111111111111111111111111111
Description-en: Play chess on three boards
 There are three boards, one above the other, and
 ninety-six pieces.
 .
 Features:
  * clocks for both players
  * saved games that can be continued
    on another day
 - a manual

Package: lamp
Description-md5: 22222222222222222222222222222222
Description-en: control of lamps
 This program switches lamps on and off.

Package: lamp-doc
Description-md5: 33333333333333333333333333333333
Description-en: lamps (documentation)
"""

DUTCH = """\
Package: chess-board
Description-md5: 11111111111111111111111111111111
Description-nl: Speel schaak op drie borden
 Er zijn drie borden boven elkaar en zesennegentig
 stukken.
 .
 Kenmerken:
  * klokken voor beide spelers
  * bewaarde partijen
 - een handleiding

Package: lamp
Description-md5: 22222222222222222222222222222222
Description-nl: control of lamps
 Dit programma schakelt lampen in en uit.

Package: lamp-doc
Description-md5: 33333333333333333333333333333333
Description-nl: lampen (documentatie)
 Een alinea te veel.

Package: forgotten
Description-md5: 44444444444444444444444444444444
Description-nl: het Engels hiervan is er niet meer
"""


def compress(name, text):
    pack = {"xz": lzma.compress, "bz2": bz2.compress}.get(name.rpartition(".")[2], bytes)
    return pack(text.encode())


def write_mirror(folder, files, release_file="InRelease", release="bookworm"):
    """A mirror in ``folder``: the files of main/i18n, and a release file with their checksums, in the true format."""
    i18n = folder / "dists" / release / "main" / "i18n"
    i18n.mkdir(parents=True, exist_ok=True)
    md5, sha256 = [], []
    for name, text in files.items():
        content = compress(name, text)
        (i18n / name).write_bytes(content)
        md5.append(f" {hashlib.md5(content).hexdigest()} {len(content):8} main/i18n/{name}")
        sha256.append(f" {hashlib.sha256(content).hexdigest()} {len(content):8} main/i18n/{name}")
        sha256.append(f" {hashlib.sha256(text.encode()).hexdigest()} {len(text):8} main/i18n/{name.partition('.')[0]}")
    other = f" {'0' * 64} 12 contrib/i18n/Translation-xx.bz2"
    lines = ["-----BEGIN PGP SIGNED MESSAGE-----", "Hash: SHA256", "", "Origin: Debian", f"Codename: {release}"]
    lines += ["MD5Sum:", *md5, "SHA256:", *sha256, other, "-----BEGIN PGP SIGNATURE-----", "", "xyz="]
    (folder / "dists" / release / release_file).write_text("\n".join(lines) + "\n")
    return folder.as_uri()


def many(language, count, offset=0):
    """A Translation file of ``count`` packages whose summaries have nothing but "package" in common."""
    stanzas = []
    for number in range(offset, offset + count):
        english = f"package w{number}a w{number}b w{number}c w{number}d"
        own = english if language == "en" else english.replace("w", f"{language}-")
        stanzas.append(f"Package: p{number}\nDescription-md5: {number:032}\nDescription-{language}: {own}\n")
    return "\n".join(stanzas)


@pytest.fixture
def mirror(tmp_path):
    files = {
        "Translation-en.xz": many("en", 60),
        "Translation-it.bz2": many("it", 60),
        "Translation-es.bz2": many("es", 16),
    }
    return write_mirror(tmp_path / "mirror", files)


def pairs_of(corpus, arm, split):
    return list(corpus[arm][split].read())


@pytest.mark.parametrize("name", ["Translation-en.xz", "Translation-en.bz2", "Translation-en"])
def test_stanzas_are_read_from_any_packing(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(compress(name, ENGLISH))
    first, second, third = descriptions(path)
    assert first == (
        "1" * 32,
        (
            "Play chess on three boards",
            "There are three boards, one above the other, and ninety-six pieces.",
            "Features:",
            "clocks for both players",
            "saved games that can be continued on another day",
            "a manual",
        ),
    )
    assert second == ("2" * 32, ("control of lamps", "This program switches lamps on and off."))
    assert third == ("3" * 32, ("lamps (documentation)",))


def test_an_italian_or_at_the_beginning_of_a_line_is_no_bullet():
    assert paragraphs(["bianco", "nero", "o bianco"]) == ("bianco", "nero o bianco")
    assert paragraphs(["Elenco", "  o nero", "  o bianco"]) == ("Elenco", "nero", "bianco")


def test_pairs_are_paragraphs_of_descriptions_that_have_as_many_as_the_english(tmp_path):
    for language, text in (("en", ENGLISH), ("nl", DUTCH)):
        (tmp_path / f"Translation-{language}").write_text(text)
    english = dict(descriptions(tmp_path / "Translation-en"))
    assert aligned(descriptions(tmp_path / "Translation-nl"), english) == [
        ("Speel schaak op drie borden", "Play chess on three boards"),
        (
            "Er zijn drie borden boven elkaar en zesennegentig stukken.",
            "There are three boards, one above the other, and ninety-six pieces.",
        ),
        ("Kenmerken:", "Features:"),
        ("klokken voor beide spelers", "clocks for both players"),
        ("bewaarde partijen", "saved games that can be continued on another day"),
        ("een handleiding", "a manual"),
        ("Dit programma schakelt lampen in en uit.", "This program switches lamps on and off."),
    ]


def test_the_corpus_is_fetched_from_a_mirror_and_divided_by_english(mirror, tmp_path):
    corpus = debian_corpus(("it", "es"), tmp_path / "cache", mirror=mirror)
    sizes = {arm: {split: len(pairs_of(corpus, arm, split)) for split in ("test", "dev")} for arm in corpus}
    assert sizes == {"it": {"test": 15, "dev": 7}, "es": {"test": 4, "dev": 2}}  # a quarter and an eighth
    english = {
        (arm, split): {pair[1] for pair in pairs_of(corpus, arm, split)} for arm in corpus for split in debian.SPLITS
    }
    held_out = set().union(*(texts for (_, split), texts in english.items() if split != "train"))
    for arm in corpus:
        assert english[arm, "train"].isdisjoint(held_out)
        assert english[arm, "test"].isdisjoint(english[arm, "dev"])
        assert all(source == text.replace("w", f"{arm}-") for source, text in pairs_of(corpus, arm, "train"))


def test_what_is_cached_needs_no_mirror(mirror, tmp_path, monkeypatch):
    first = debian_corpus(("it", "es"), tmp_path / "cache", mirror=mirror)
    monkeypatch.setattr(debian, "fetch", None)  # calling it would fail
    monkeypatch.setattr(debian, "configured_mirror", None)
    again = debian_corpus(("it", "es"), tmp_path / "cache")
    assert pairs_of(again, "es", "train") == pairs_of(first, "es", "train")
    fewer = debian_corpus_from_files(tmp_path, monkeypatch)
    assert pairs_of(fewer, "es", "test") == pairs_of(first, "es", "test")  # whatever the other languages are


def debian_corpus_from_files(tmp_path, monkeypatch):
    """Other languages need another division, but nothing that is not there."""
    monkeypatch.setattr(debian, "configured_mirror", lambda release: "http://mirror.example.invalid/debian")
    return debian_corpus(("es",), tmp_path / "cache")


def test_a_release_file_without_signature_will_do(tmp_path):
    files = {"Translation-en.xz": many("en", 40), "Translation-pt_BR.xz": many("pt_BR", 40)}
    address = write_mirror(tmp_path / "mirror", files, release_file="Release", release="trixie")
    corpus = debian_corpus(("pt_BR",), tmp_path / "cache", mirror=address + "/", release="trixie")
    assert len(pairs_of(corpus, "pt_BR", "test")) == 10


def test_a_file_without_the_listed_checksum_is_refused_and_not_kept(mirror, tmp_path):
    path = tmp_path / "mirror" / "dists" / "bookworm" / "main" / "i18n" / "Translation-es.bz2"
    path.write_bytes(bz2.compress(many("es", 17).encode()))
    with pytest.raises(MirrorUnavailable, match=r"Translation-es\.bz2 does not have the checksum of the release file"):
        debian_corpus(("it", "es"), tmp_path / "cache", mirror=mirror)
    assert not list((tmp_path / "cache").rglob("Translation-es*"))
    assert not list((tmp_path / "cache").rglob("*.tsv"))


def test_a_damaged_file_in_the_cache_is_fetched_again(mirror, tmp_path):
    cached = tmp_path / "cache" / "debian" / "bookworm" / "Translation-it.bz2"
    cached.parent.mkdir(parents=True)
    cached.write_bytes(b"damaged")
    corpus = debian_corpus(("it", "es"), tmp_path / "cache", mirror=mirror)
    assert len(pairs_of(corpus, "it", "test")) == 15


def test_a_truncated_file_is_named(tmp_path):
    path = tmp_path / "Translation-en.xz"
    path.write_bytes(lzma.compress(ENGLISH.encode())[:-20])
    with pytest.raises(ValueError, match=r"Translation-en\.xz is damaged"):
        list(descriptions(path))


def test_a_mirror_without_the_release_or_the_language_says_so(mirror, tmp_path):
    with pytest.raises(
        MirrorUnavailable, match=r"no release file at .*/dists/potato \(no file .*InRelease\).*data\.mirror"
    ):
        debian_corpus(("it",), tmp_path / "cache", mirror=mirror, release="potato")
    with pytest.raises(ValueError, match="unknown language of bookworm in Debian: 'tlh'; known: en, es, it"):
        debian_corpus(("tlh",), tmp_path / "cache", mirror=mirror)


def test_a_mirror_without_descriptions_says_so(tmp_path):
    address = write_mirror(tmp_path / "mirror", {})
    with pytest.raises(MirrorUnavailable, match="lists no translated descriptions"):
        debian_corpus(("it",), tmp_path / "cache", mirror=address)


def test_without_a_mirror_the_remedy_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(
        debian, "configured_mirror", lambda release: mirrors.configured_mirror(release, tmp_path / "apt")
    )
    with pytest.raises(MirrorUnavailable, match=r"names no package mirror; set data\.mirror"):
        debian_corpus(("it",), tmp_path / "cache")


def test_near_duplicates_of_a_held_out_paragraph_leave_every_training_text():
    texts = [f"a{number} b{number} c{number} d{number} e{number} f{number} g{number} h{number}" for number in range(40)]
    held_out = hold_out(map(key_of, texts))
    test, dev = min(held_out["test"]), min(held_out["dev"])
    near_test = " ".join([*test.split()[1:], "other"])  # 7 words of 9: 0.78
    far_from_dev = " ".join([*dev.split()[2:], "some", "thing"])  # 6 of 10: 0.6
    for number in range(1000):  # words that make the new texts no test texts themselves
        texts_of_it = [*texts, f"{near_test}{number}", f"{far_from_dev}{number}"]
        taken = hold_out(map(key_of, texts_of_it))
        if (
            taken["test"] >= {test}
            and taken["dev"] >= {dev}
            and not set(texts_of_it[40:]) & (taken["test"] | taken["dev"])
        ):
            break
    divided = divide({"it": [(text.upper(), text) for text in texts_of_it], "es": [("CERCA", texts_of_it[40])]})
    english = [pair[1] for pair in divided["it"]["train"]]
    assert texts_of_it[40] not in english
    assert texts_of_it[41] in english
    assert divided["es"]["train"] == []


def test_a_small_language_loses_nothing_to_the_test_set_of_a_large_one():
    large, small = [f"w{n}a w{n}b w{n}c w{n}d" for n in range(8000)], [f"w{n}a w{n}b w{n}c w{n}d" for n in range(800)]
    divided = divide({arm: [(text.upper(), text) for text in texts] for arm, texts in (("da", large), ("nl", small))})
    assert {split: len(pairs) for split, pairs in divided["nl"].items()} == {"train": 500, "test": 200, "dev": 100}
    assert (len(divided["da"]["test"]), len(divided["da"]["dev"])) == (1000, 500)
    # What the small one holds out is missing in the large one, unless it is held out there too.
    assert len(divided["da"]["train"]) > 8000 - 1500 - 300


def test_no_language_tests_what_another_has_in_its_dev_set():
    texts = [f"w{n}a w{n}b w{n}c w{n}d" for n in range(300)]
    test, dev = set(), set()
    for start in range(0, 300, 3):  # languages so small that chance alone would not keep the two apart
        held_out = hold_out(map(key_of, texts[start : start + 16]))
        test, dev = test | held_out["test"], dev | held_out["dev"]
    assert test
    assert dev
    assert test.isdisjoint(dev)


def test_one_paragraph_with_two_translations_is_one_test_pair():
    texts = [f"w{n}a w{n}b w{n}c w{n}d" for n in range(40)]
    pairs = [(f"first {text}", text) for text in texts] + [(f"second {text}", text) for text in texts]
    divided = divide({"da": pairs})
    assert len(divided["da"]["test"]) == 10
    assert all(source.startswith("first") for source, _ in divided["da"]["test"])
    assert len(divided["da"]["train"]) == 2 * (40 - 10 - 5)


def test_the_settings_of_debian_are_for_debian_and_unseen_elsewhere(mirror, tmp_path):
    config = CorpusConfig(corpus="debian", mirror=mirror, languages=("it", "es"))
    assert config.model_dump()["release"] == "bookworm"
    assert list(open_corpus(config, tmp_path / "cache")) == ["it", "es"]
    assert {"mirror", "release"}.isdisjoint(CorpusConfig(corpus="catalogues").model_dump())
    assert "mirror" not in CorpusConfig(corpus="debian").model_dump()
    with pytest.raises(ValueError, match="'mirror' and 'release' are for corpus: debian"):
        CorpusConfig(corpus="catalogues", release="trixie")
    with pytest.raises(ValueError, match="'mirror.example.invalid' is not an address"):
        CorpusConfig(corpus="debian", mirror="mirror.example.invalid")
    with pytest.raises(ValueError, match="release"):
        CorpusConfig(corpus="debian", release="../etc")


def test_prepared_data_do_not_depend_on_the_mirror(mirror, tmp_path):
    subwords = SubwordsConfig(size=400, lines=50)
    config = CorpusConfig(corpus="debian", mirror=mirror, languages=("it", "es"))
    run(config, tmp_path / "data", subwords=subwords, processes=2)
    other = CorpusConfig(corpus="debian", mirror="http://mirror.example.invalid/debian", languages=("it", "es"))
    store = run(other, tmp_path / "data", subwords=subwords)
    assert store.manifest.settings["corpus"]["release"] == "bookworm"
    assert set(store.sizes) == {"it", "es"}
    with pytest.raises(ValueError, match=r": data\.release changed from bookworm to trixie"):
        run(config.model_copy(update={"release": "trixie"}), tmp_path / "data", subwords=subwords)


def test_the_small_relatives_are_low_resource():
    sizes = dict.fromkeys(debian.LANGUAGES, 1000)
    assert low_resource(CorpusConfig(corpus="debian"), sizes) == ("es", "nl", "cs", "sr")
    assert low_resource(CorpusConfig(corpus="debian"), {"fr": 1000, "fi": 10}) == ("fi",)
