"""How two folders of results differ: files by their bytes, tensors by name, JSON by key. For golden.py."""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

BY_VALUE = {"run.json", "state.json", "checkpoint.json"}
NOT_COMPARED = {"timings.jsonl", ".lock"}
FOR_PEOPLE = ("*.png", "*.svg", "index.html", "report.md", "README.md")
# Versions, paths, and the checksums of files that are compared themselves.
FREE_KEYS = {"run.json": {"versions", "data.folder"}, "checkpoint.json": {"files"}}
NUMBERS = {"F32": ("<f4", "<u4"), "F64": ("<f8", "<u8"), "I64": ("<i8", "<u8")}  # as values and as bits


@dataclass(frozen=True)
class Difference:
    """Where two files part: ``at`` is a line, a key or a tensor."""

    file: str
    at: str
    how: str

    def __str__(self) -> str:
        place = ", ".join(filter(None, (self.file, self.at)))
        return f"{place}: {self.how}" if place else self.how


@dataclass
class Findings:
    """What comparing two folders, or several pairs of them, came to."""

    different: list[Difference] = field(default_factory=list)
    noted: list[Difference] = field(default_factory=list)  # in files for people
    new: list[str] = field(default_factory=list)  # files that only AFTER wrote


def compare_folders(before: Path, after: Path, allowed: Sequence[str] = ()) -> Findings:
    """Every file that BEFORE wrote beside what AFTER wrote under the same name."""
    old, new = _files_in(before), _files_in(after)
    found = Findings()
    for name in old:
        how = _compare_files(before / name, after / name, allowed) if name in new else [("", "is missing")]
        noted = any(fnmatch.fnmatch(Path(name).name, pattern) for pattern in FOR_PEOPLE)
        (found.noted if noted else found.different).extend(Difference(name, *each) for each in how)
    for name in new:
        if name in old:
            continue
        if name.endswith("checkpoint.json"):  # not a new kind of file, but a step that was not saved before
            found.different.append(Difference(name, "", "is a checkpoint that BEFORE does not have"))
        found.new.append(name)
    if not old:
        found.different.append(Difference(before.name, "", "BEFORE wrote no file"))
    return found


def _files_in(folder: Path) -> list[str]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name not in NOT_COMPARED)
    names = (str(path.relative_to(folder)) for path in files)
    return sorted(names, key=lambda name: (name.count("/"), name))  # records before checkpoints


def _compare_files(before: Path, after: Path, allowed: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of where and how; empty if the files count as the same."""
    old, new = before.read_bytes(), after.read_bytes()
    if old == new:
        return []
    if before.suffix == ".safetensors":
        return compare_tensors(old, new, allowed)
    if before.suffix == ".jsonl":
        return _compare_lines(old, new, allowed)
    if before.suffix == ".json":
        used: list[str] = []
        free = FREE_KEYS.get(before.name, set())
        one, other = json.loads(old), json.loads(new)
        used += _differing_checks(one, other)
        found = compare_values(one, other, allowed, free=free, used=used)
        if set(used) - {"check"} and before.name == "run.json":  # the fingerprint is of all keys
            found = [(at, how) for at, how in found if at != "config_fingerprint"]
        return found or ([] if used or before.name in BY_VALUE else [("", "the same values in other bytes")])
    return [_first_line(old, new)]


def compare_tensors(old: bytes, new: bytes, allowed: Sequence[str] = ()) -> list[tuple[str, str]]:
    """The tensors of two safetensors files by name, type, shape and bytes."""
    before, after = _tensors(old), _tensors(new)
    found = [(name, "the tensor is missing") for name in before if name not in after]
    found += [(name, "the tensor is new") for name in after if name not in before and not matches(name, allowed)]
    for name in (name for name in before if name in after):
        (kind, shape, data), (new_kind, new_shape, new_data) = before[name], after[name]
        if (kind, shape) != (new_kind, new_shape):
            found.append((name, f"{kind} {shape} became {new_kind} {new_shape}"))
        elif data != new_data:
            found.append((name, _how_far(data, new_data, kind)))
    return found


def _tensors(data: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    values = memoryview(data)[start:]
    return {
        name: (about["dtype"], about["shape"], bytes(values[slice(*about["data_offsets"])]))
        for name, about in header.items()
    }


def _how_far(old: bytes, new: bytes, kind: str) -> str:
    if kind not in NUMBERS:
        return "other bytes"
    values, bits = NUMBERS[kind]
    changed = np.frombuffer(old, bits) != np.frombuffer(new, bits)
    far = np.abs(np.frombuffer(new, values).astype(float) - np.frombuffer(old, values)).max()
    return f"{changed.sum():,} of {changed.size:,} values differ, by {far:.2g} at most"


def compare_values(
    before: Any, after: Any, allowed: Sequence[str] = (), *, free: Collection[str] = (), used: list[str] | None = None
) -> list[tuple[str, str]]:
    """Two JSON trees: which keys differ and how. ``used`` collects the new keys that were allowed."""
    old, new = dict(_leaves(before)), dict(_leaves(after))
    found = []
    for key in dict.fromkeys((*old, *new)):
        if any(key == name or key.startswith(f"{name}.") for name in free):
            continue
        if key not in new:
            found.append((key, f"{old[key]} is missing"))
        elif key not in old and matches(key, allowed):
            if used is not None:
                used.append(key)
        elif key not in old:
            found.append((key, f"{new[key]} is new"))
        elif old[key] != new[key]:
            found.append((key, f"{old[key]} became {new[key]}"))
    return found


def matches(key: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatch(key, pattern) for pattern in patterns)


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys and their values as JSON, so that 1, 1.0 and true differ and NaN equals itself."""
    if isinstance(value, dict | list) and value:
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    """Cut for people, with a checksum so that two long values that differ do so here too."""
    return text if len(text) <= 60 else f"{text[:40]}... ({hashlib.sha256(text.encode()).hexdigest()[:6]})"


def _compare_lines(old: bytes, new: bytes, allowed: Sequence[str]) -> list[tuple[str, str]]:
    """The first line of two records that differs, and which keys of it."""
    before, after = old.split(b"\n"), new.split(b"\n")
    for number, (one, other) in enumerate(zip(before, after, strict=False), start=1):
        if one == other:
            continue
        try:
            used: list[str] = []
            entries = json.loads(one), json.loads(other)
            used += _differing_checks(*entries)
            found = compare_values(*entries, allowed, used=used)
        except ValueError:
            return [_first_line(old, new)]
        if found or not used:
            how = "; ".join(f"{key} {how}" for key, how in found[:3]) or "the same values in other bytes"
            return [(f"line {number}", how)]
    return [] if len(before) == len(after) else [("", f"{len(before) - 1} lines became {len(after) - 1}")]


def _differing_checks(one: Any, other: Any) -> list[str]:
    """Takes the check values out of two objects: they differ where anything does, and what does is named by its key."""
    if not isinstance(one, dict) or not isinstance(other, dict):
        return []
    return ["check"] if one.pop("check", None) != other.pop("check", None) else []


def _first_line(old: bytes, new: bytes) -> tuple[str, str]:
    if b"\0" in old:  # no text
        return "", f"other bytes ({len(old):,} became {len(new):,})"
    before, after = old.split(b"\n"), new.split(b"\n")
    number = next((at for at, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), None)
    if number is None:
        return "", f"{len(before)} lines became {len(after)}"
    lines = (_short(text[number].decode("utf-8", "replace")) for text in (before, after))
    return f"line {number + 1}", "{!r} became {!r}".format(*lines)
