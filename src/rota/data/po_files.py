"""Reading gettext catalogues: ``.po`` as text, ``.mo`` as the binary tables that msgfmt makes of it."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Final

Message = tuple[str, str]
"""The original and its translation, as the catalogue has them; untranslated messages are left out."""

_KEYWORD = re.compile(r'(msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)\s+"(.*)"\s*')
_CONTINUED = re.compile(r'"(.*)"\s*')
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r"}
_MO_MAGIC: Final = 0x950412DE


def read_po(data: bytes) -> Iterator[Message]:
    """Messages in order, without those that are fuzzy, obsolete or have a plural."""
    entry = _Entry()
    for line in [*data.decode("utf-8-sig").split("\n"), ""]:
        text = line.strip()
        begins = not text or text.startswith(("#", "msgctxt", "msgid ", 'msgid"'))
        if begins and "msgstr" in entry.fields:
            yield from entry.message()
            entry = _Entry()
        entry.read(text)


class _Entry:
    """One entry of a ``.po`` file, as far as it has been read."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self._fuzzy = False
        self._last = ""

    def read(self, text: str) -> None:
        if text.startswith("#,"):
            self._fuzzy = self._fuzzy or "fuzzy" in text
        elif keyword := _KEYWORD.fullmatch(text):
            self._last = keyword[1].replace("msgstr[0]", "msgstr")
            self.fields[self._last] = keyword[2]
        elif continued := _CONTINUED.fullmatch(text):
            self.fields[self._last] = self.fields.get(self._last, "") + continued[1]

    def message(self) -> Iterator[Message]:
        original, translation = self.fields.get("msgid"), self.fields["msgstr"]
        if original and translation and not self._fuzzy and "msgid_plural" not in self.fields:
            yield _unescape(original), _unescape(translation)


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda match: _ESCAPED.get(match[1], match[1]), text) if "\\" in text else text


def read_mo(data: bytes) -> Iterator[Message]:
    """Messages in the order of the table, without those that have a plural; the context is removed."""
    order = "<" if data[:4] == struct.pack("<I", _MO_MAGIC) else ">"
    magic, _, count, originals, translations = struct.unpack_from(f"{order}5I", data)
    if magic != _MO_MAGIC:
        raise ValueError("not a .mo file: it does not begin with the gettext magic number")
    for number in range(count):
        original = _string(data, order, originals + 8 * number)
        translation = _string(data, order, translations + 8 * number)
        if original and translation and b"\0" not in original:
            yield original.rpartition(b"\4")[2].decode("utf-8"), translation.decode("utf-8")


def _string(data: bytes, order: str, entry: int) -> bytes:
    length, start = struct.unpack_from(f"{order}2I", data, entry)
    return data[start : start + length]
