"""What was tried and how it ended, by kind; what went wrong is listed with the way to see it again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

WRONG = ("lost", "left over", "silent", "traceback", "hang", "memory", "other")
"""Ends that must not be: another result, files left over, damage that changes a result unnoticed, and so on."""


@dataclass
class Counts:
    """Ends by kind of trial, such as ``kills: train tscl``, and what was wrong in words."""

    ends: dict[str, Counter[str]] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def add(self, kind: str, end: str, why: str = "") -> None:
        self.ends.setdefault(kind, Counter())[end] += 1
        if end in WRONG:
            self.wrong.append(f"{kind}: {end}: {why}")

    def merge(self, other: Counts) -> None:
        for kind, ends in other.ends.items():
            self.ends.setdefault(kind, Counter()).update(ends)
        self.wrong += other.wrong

    def save(self, path: Path) -> None:
        path.write_text(json.dumps({"ends": self.ends, "wrong": self.wrong}, indent=1, ensure_ascii=False))

    @classmethod
    def load(cls, path: Path) -> Counts:
        content = json.loads(path.read_text())
        return cls({kind: Counter(ends) for kind, ends in content["ends"].items()}, content["wrong"])

    @property
    def failed(self) -> bool:
        return bool(self.wrong)

    def table(self) -> str:
        """Markdown: a row for each kind, a column for each end that occurred."""
        ends = sorted({end for ends in self.ends.values() for end in ends}, key=lambda end: (end in WRONG, end))
        rows = [["what was tried", "times", *ends]]
        for kind, found in sorted(self.ends.items()):
            rows.append([kind, f"{found.total():,}", *(f"{found[end]:,}" for end in ends)])
        groups = dict.fromkeys(kind.partition(":")[0] for kind in sorted(self.ends))
        for group in groups:
            total: Counter[str] = Counter()
            for kind, found in self.ends.items():
                if kind.partition(":")[0] == group:
                    total.update(found)
            rows.append([f"**all {group}**", f"{total.total():,}", *(f"{total[end]:,}" for end in ends)])
        return "\n".join(_lines(rows))


def _lines(rows: list[list[str]]) -> Iterable[str]:
    yield "| " + " | ".join(rows[0]) + " |"
    yield "|---" + "|---:" * (len(rows[0]) - 1) + "|"
    for row in rows[1:]:
        yield "| " + " | ".join(row) + " |"
