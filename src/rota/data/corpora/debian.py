"""The translated package descriptions of Debian: one domain, written by people, on every Debian mirror.

``dists/<release>/main/i18n/Translation-<language>`` has a stanza for each description; the one in English with the same
``Description-md5`` is its original. Paragraphs and list items are the pairs. A paragraph is in the same split in all
languages, and texts that are nearly the same as a held-out one are in no training text.
"""

from __future__ import annotations

import bz2
import logging
import lzma
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

from rota.data.corpora.download import DownloadError, alone_in
from rota.data.corpora.mirrors import MirrorUnavailable, configured_mirror, fetch
from rota.data.corpora.near_duplicates import NearDuplicates, words_of
from rota.data.corpora.parallel import (
    SPLITS,
    Corpus,
    Pair,
    ParallelText,
    Split,
    check_known,
    decode_lines,
    not_empty,
    read_tsv,
    tidy,
)
from rota.files import fingerprint, sha256_of
from rota.types import Arm

logger = logging.getLogger(__name__)

RELEASE: Final = "bookworm"
LANGUAGES: Final[tuple[Arm, ...]] = ("it", "es", "da", "nl", "sk", "cs", "uk", "sr")  # large, then its small relative
LOW_RESOURCE: Final[tuple[Arm, ...]] = ("es", "nl", "cs", "sr")
FORMAT: Final = 1  # of the cached text; raise it when the reading or the split changes

# A held-out split is as large as the language allows: the lesser of a share of its paragraphs and a number.
SHARES: Final[Mapping[Split, tuple[float, int]]] = {"test": (0.25, 1000), "dev": (0.125, 500)}
HELD_OUT_WORDS: Final = range(4, 81)  # English; a heading of one word says nothing about a translation
NEAR: Final = 0.7  # Jaccard similarity of the words

_RELEASE_FILES: Final = ("InRelease", "Release")
_TRANSLATION = re.compile(r"main/i18n/Translation-(?P<language>[^/.]+)(?P<packing>\.xz|\.bz2)?")
_PACKINGS: Final = (".xz", ".bz2", "")  # in the order of preference
# An "o" marks a list item only if it is indented: it is a word in Italian and Spanish.
_BULLET = re.compile(r"(?:\s*[*+•·-]|\s+o)\s+")

_MIDDLE: Final = b"\x80"  # of all positions

Paragraphs = tuple[str, ...]
"""The summary, then the paragraphs and list items of a description."""


@dataclass(frozen=True)
class Listed:
    """A file as the release file lists it."""

    name: str  # relative to dists/<release>
    sha256: str


def debian_corpus(
    languages: Sequence[Arm], cache: Path, *, mirror: str | None = None, release: str = RELEASE
) -> Corpus:
    """The corpus as two-column files in ``cache``; fetched, aligned and divided the first time only.

    ``mirror``: ``None`` for the one that the machine's apt configuration names; it is not needed if all is there.
    """
    folder = cache / "debian" / release
    listed = _cached_list(folder)
    text = None if listed is None else _text_folder(folder, languages, listed)
    if text is None or not text.is_dir():
        with alone_in(folder):
            text = _make(folder, languages, mirror or configured_mirror(release), release)
    return {arm: {split: _cached(text / f"{split}.{arm}.tsv", release) for split in SPLITS} for arm in languages}


def _cached(path: Path, release: str) -> ParallelText:
    return ParallelText(f"debian {release} {path.name}", (path,), lambda: not_empty(read_tsv(path), (path,)))


def _text_folder(folder: Path, languages: Sequence[Arm], listed: Mapping[str, Listed]) -> Path:
    for language in (*languages, "en"):
        check_known(language, sorted(listed), f"language of {folder.name} in Debian:")
    sums = {language: listed[language].sha256 for language in (*languages, "en")}
    return folder / f"text-{FORMAT}-{fingerprint(sums)}"


def _make(folder: Path, languages: Sequence[Arm], mirror: str, release: str) -> Path:
    base = f"{mirror.rstrip('/')}/dists/{release}"
    listed = _cached_list(folder) or _fetch_list(folder, base)
    text = _text_folder(folder, languages, listed)
    if text.is_dir():  # made by the process that we waited for
        return text
    files = {language: _fetched(folder, base, listed[language]) for language in ("en", *languages)}
    english = dict(descriptions(files["en"]))
    pairs = {arm: aligned(descriptions(files[arm]), english) for arm in languages}
    del english
    _write(text, divide(pairs))
    return text


def _cached_list(folder: Path) -> dict[str, Listed] | None:
    path = next((folder / name for name in _RELEASE_FILES if (folder / name).is_file()), None)
    return None if path is None else translations(path)


def _fetch_list(folder: Path, base: str) -> dict[str, Listed]:
    reason = ""
    for name in _RELEASE_FILES:
        try:
            fetch(f"{base}/{name}", folder / name)
        except DownloadError as error:
            reason = reason or str(error)
            continue
        listed = translations(folder / name)
        if not listed:
            (folder / name).unlink()
            raise MirrorUnavailable(f"{base}/{name} lists no translated descriptions; set data.mirror or data.release")
        return listed
    raise MirrorUnavailable(f"no release file at {base} ({reason}); set data.mirror to a mirror that has the release")


def translations(release_file: Path) -> dict[str, Listed]:
    """Language to the file of its translations: of several packings, the smallest."""
    found: dict[str, dict[str, Listed]] = {}
    section = ""
    for line in release_file.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.startswith(" "):
            section = line.partition(":")[0]
        elif section == "SHA256" and len(entry := line.split()) == 3 and (match := _TRANSLATION.fullmatch(entry[2])):
            found.setdefault(match["language"], {})[match["packing"] or ""] = Listed(entry[2], entry[0])
    return {
        language: next(packed[packing] for packing in _PACKINGS if packing in packed)
        for language, packed in found.items()
    }


def _fetched(folder: Path, base: str, listed: Listed) -> Path:
    """The file in ``folder``, with the checksum that the release file gives it."""
    path = folder / Path(listed.name).name
    if path.is_file() and sha256_of(path) == listed.sha256:
        return path
    logger.info("fetching %s", path.name)
    try:
        fetch(f"{base}/{listed.name}", path)
    except DownloadError as error:
        raise MirrorUnavailable(f"{error}; set data.mirror to another mirror") from None
    if sha256_of(path) != listed.sha256:
        path.unlink()
        remedy = f"fetch it again, or delete {folder} if the mirror has changed since its release file was fetched"
        raise MirrorUnavailable(f"{base}/{listed.name} does not have the checksum of the release file; {remedy}")
    return path


def descriptions(path: Path) -> Iterator[tuple[str, Paragraphs]]:
    """The md5 of each English original, and the paragraphs of this language."""
    try:
        with _opened(path) as file:
            for md5, lines in _stanzas(decode_lines(file, str(path))):
                yield md5, paragraphs(lines)
    except (EOFError, OSError, lzma.LZMAError) as error:
        raise ValueError(f"{path} is damaged ({error}); delete it to fetch it again") from None


def _opened(path: Path) -> lzma.LZMAFile | bz2.BZ2File | BinaryIO:
    if path.suffix == ".xz":
        return lzma.open(path)
    if path.suffix == ".bz2":
        return bz2.open(path)
    return path.open("rb")


def _stanzas(lines: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """The md5 and the lines of each description: the summary, then the text without the space before each line."""
    md5, found, inside = "", list[str](), False
    for line in lines:
        if line.startswith(" "):
            if inside:
                found.append(line[1:])
        elif line.startswith("Description-md5:"):
            md5, inside = line.partition(":")[2].strip(), False
        elif line.startswith("Description-"):
            found, inside = [line.partition(":")[2]], True
        else:
            inside = False
            if not line and md5 and found:
                yield md5, found
            if not line:
                md5, found = "", []
    if md5 and found:
        yield md5, found


def paragraphs(lines: Sequence[str]) -> Paragraphs:
    """The summary and the text, cut at lines of a single dot and before list items; bullets are removed."""
    parts: list[list[str]] = [[lines[0]], []]
    for line in lines[1:]:
        if line.strip() == ".":
            parts.append([])
        elif bullet := _BULLET.match(line):
            parts.append([line[bullet.end() :]])
        else:
            parts[-1].append(line)
    texts = (tidy(" ".join(part)) for part in parts)
    return tuple(text for text in texts if text)


def aligned(translated: Iterable[tuple[str, Paragraphs]], english: Mapping[str, Paragraphs]) -> list[Pair]:
    """Different pairs, in the order of the file, of the descriptions that have as many paragraphs as the original.

    What was left in English is not a pair.
    """
    pairs: dict[Pair, None] = {}
    for md5, own in translated:
        original = english.get(md5, ())
        if len(own) == len(original):
            pairs.update((pair, None) for pair in zip(own, original, strict=True) if _is_translated(*pair))
    return list(pairs)


def _is_translated(source: str, english: str) -> bool:
    return source.casefold() != english.casefold() and any(map(str.isalpha, english))


def key_of(english: str) -> str:
    """What counts as the same English paragraph."""
    return " ".join(words_of(english))


def divide(corpus: Mapping[Arm, Sequence[Pair]]) -> dict[Arm, dict[Split, list[Pair]]]:
    """Train, dev and test of each language; no paragraph of any dev or test set is in a training text, nor nearly."""
    keyed = {arm: [(key_of(english), (source, english)) for source, english in pairs] for arm, pairs in corpus.items()}
    held_out = {arm: hold_out({key for key, _ in pairs}) for arm, pairs in keyed.items()}
    everywhere = {key for splits in held_out.values() for keys in splits.values() for key in keys}
    near = NearDuplicates((key.split() for key in everywhere), NEAR)
    kept = {key: key.split() not in near for key in {key for pairs in keyed.values() for key, _ in pairs}}
    divided: dict[Arm, dict[Split, list[Pair]]] = {}
    for arm, pairs in keyed.items():
        divided[arm] = {"train": [pair for key, pair in pairs if kept[key]]}
        for split, keys in held_out[arm].items():
            first = dict(reversed([(key, pair) for key, pair in pairs if key in keys]))  # one translation of each
            divided[arm][split] = [first[key] for key in sorted(keys, key=_position)]
        _log(arm, divided[arm], sum(not kept[key] and key not in everywhere for key, _ in pairs))
    return divided


def _log(arm: Arm, divided: Mapping[Split, Sequence[Pair]], near: int) -> None:
    sizes = ", ".join(f"{split} {len(divided[split]):,}" for split in SPLITS)
    logger.info("%s: %s; left out %s that are nearly the same as a held-out paragraph", arm, sizes, f"{near:,}")


def hold_out(keys: Iterable[str]) -> dict[Split, set[str]]:
    """Of one language's paragraphs those for test and dev.

    All paragraphs have a fixed random position. A test set has the first ones, a dev set the last ones, neither from
    the other half of all positions. So the sets of a language do not depend on the other languages; none has a dev
    paragraph that another one tests; and what a large language holds out, from a short range of positions, a small
    one that has it holds out too, and loses no training text by it.
    """
    candidates = sorted((key for key in keys if key.count(" ") + 1 in HELD_OUT_WORDS), key=_position)
    from_start = [key for key in candidates if _position(key) < _MIDDLE]
    from_end = [key for key in reversed(candidates) if _position(key) >= _MIDDLE]
    wanted = {split: min(most, int(share * len(candidates))) for split, (share, most) in SHARES.items()}
    return {"test": set(from_start[: wanted["test"]]), "dev": set(from_end[: wanted["dev"]])}


def _position(key: str) -> bytes:
    return blake2b(key.encode(), digest_size=8).digest()


def _write(text: Path, corpus: Mapping[Arm, Mapping[Split, list[Pair]]]) -> None:
    """All files appear at once under ``text``, or none."""
    with tempfile.TemporaryDirectory(dir=text.parent, prefix="text-") as name:
        ready = Path(name) / "ready"
        ready.mkdir()
        for arm, splits in corpus.items():
            for split, pairs in splits.items():
                lines = "".join(f"{source}\t{english}\n" for source, english in pairs)
                (ready / f"{split}.{arm}.tsv").write_text(lines, encoding="utf-8", newline="\n")
        ready.rename(text)
