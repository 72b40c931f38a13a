"""Mutated parallel text: bytes that are not text, line ends, damaged and swollen gzip files, names of languages."""

from __future__ import annotations

import gzip
import json
import random
import shutil
from pathlib import Path

from counts import Counts
from forks import run_rota
from inputs import SECONDS, judged

WORDS = ("ba", "so", "li", "na", "tu", "ke", "ro", "mi")
NAMES = (
    *(
        "xa",
        "../xa",
        "a/b",
        "/xa",
        "<script>alert(1)</script>",
        "x<b>",
        "a&b",
        "",
        " ",
        "a b",
        "x\u0000",
        "x\n",
        "é",
        "en",
    ),
    *("con", ".", "..", "-", "x" * 300, "{side}", "xa.", "xa:xb", "💬", "mixed", "null", "yes", "1", "%s", "\u202exa"),
)
CHARACTERS = (
    *(
        "\x00",
        "\ufeff",
        "\r",
        "\r\n",
        "\n",
        "\x0b",
        "\x0c",
        "\x1c",
        "\x85",
        "\u2028",
        "\u2029",
        "\t",
        "\u200b",
        "\u202e",
    ),
    *(
        "\ud800",
        "\udfff",
        "\U0010ffff",
        "\uffff",
        "😀",
        "é",
        "ﬁ",
        "<b>",
        "&amp;",
        "{",
        "▁",
        "<unk>",
        "</s>",
        "<pad>",
        "__xa__",
    ),
)
BYTES = (
    b"\x00",
    b"\xff",
    b"\xfe\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf4\x90\x80\x80",
    b"\x1f\x8b",
    b"\xef\xbb\xbf",
    b"\r",
)
CONFIG = {"subwords": {"size": 300}, "folder": "data"}


def sentences(rng: random.Random, count: int) -> list[str]:
    return [" ".join(rng.choice(WORDS) for _ in range(rng.randrange(1, 12))) for _ in range(count)]


def text(rng: random.Random, count: int) -> bytes:
    """Lines of words; some of them with what does not belong there."""
    lines = sentences(rng, count)
    for _ in range(rng.choice((0, 0, 1, 3, 20))):
        place = rng.randrange(len(lines)) if lines else 0
        if lines:
            at = rng.randrange(len(lines[place]) + 1)
            lines[place] = lines[place][:at] + rng.choice(CHARACTERS) + lines[place][at:]
    ends = rng.choice(("\n", "\n", "\n", "\r\n", "\r"))
    data = (ends.join(lines) + rng.choice((ends, ends, ""))).encode("utf-8", "surrogatepass")
    if rng.random() < 0.15:
        data = data.decode("utf-8", "replace").encode(rng.choice(("utf-16", "utf-8-sig", "utf-32")))
    if rng.random() < 0.2:
        at = rng.randrange(len(data) + 1)
        data = data[:at] + rng.choice(BYTES) + data[at:]
    if rng.random() < 0.05:
        data = data.replace(b"\n", b" ")  # one long line
    return data


def packed(data: bytes, rng: random.Random) -> bytes:
    """As gzip: whole, cut short, with a changed byte, with something after it, or not gzip at all."""
    whole = gzip.compress(data, mtime=0)
    how = rng.randrange(8)
    if how == 0:
        return whole[: rng.randrange(len(whole))]
    if how == 1:
        at = rng.randrange(len(whole))
        return whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :]
    if how == 2:
        return whole + rng.choice((b"x", b"\x00" * 10, whole, whole[:9]))
    return data if how == 3 else whole


def bomb(rng: random.Random, megabytes: int = 300) -> bytes:
    """Grows to hundreds of megabytes: one line, or as many empty ones."""
    piece = rng.choice((b"a", b"\n", b"\x00", b"a ", b"ba so\n"))
    member = gzip.compress(piece * (1_000_000 * 10 // len(piece)), mtime=0)
    return member * (megabytes // 10)


def write_corpus(folder: Path, rng: random.Random, *, bombs: bool = True) -> None:
    """Files of two languages, and ``corpus.yaml``, which is JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    suffix = rng.choice(("", ".gz"))
    kind = rng.choice((f"{{split}}.{{language}}.{{side}}{suffix}", f"{{split}}.{{language}}.tsv{suffix}"))
    names = ["xa", "xb"] if rng.random() < 0.8 else ["xa", rng.choice(NAMES)]
    careful = rng.random() < 0.7  # one file is odd; otherwise all are
    odd = rng.randrange(12)
    number = 0
    for split, count in (("train", 60), ("dev", 8), ("test", 4)):
        for language in ("xa", "xb"):
            sides = (language, "en") if "side" in kind else ("",)
            for side in sides:
                name = kind.format(split=split, language=language, side=side)
                normal = careful and number != odd
                lines = rng.choice((0, 1, count, count + 1)) if rng.random() < 0.2 and not normal else count
                (folder / name).write_bytes(
                    _file(rng, lines, tsv=len(sides) == 1, gz=bool(suffix), normal=normal, bombs=bombs)
                )
                number += 1
    patterns = {split: kind.replace("{split}", split) for split in ("train", "dev", "test")}
    content = {"data": {"languages": names, **patterns, **CONFIG}}
    (folder / "corpus.yaml").write_text(json.dumps(content), "utf-8")


def _file(rng: random.Random, lines: int, *, tsv: bool, gz: bool, normal: bool, bombs: bool) -> bytes:
    if normal:
        columns = [sentences(rng, lines) for _ in range(1 + tsv)]
        data = "".join("\t".join(row) + "\n" for row in zip(*columns, strict=True)).encode()
        return gzip.compress(data, mtime=0) if gz else data
    if gz and bombs and rng.random() < 0.1:
        return bomb(rng)
    data = text(rng, lines)
    if tsv:
        data = data.replace(b"\n", b"\tba so\n")
    return packed(data, rng) if gz else data


class Corpora:
    """``rota prepare`` on one mutated corpus after the other."""

    def __init__(self, folder: Path, rng: random.Random, counts: Counts) -> None:
        self.folder, self.rng, self.counts = folder, rng, counts

    def corpus(self) -> None:
        seed = self.rng.randrange(1 << 32)
        project = self.folder / "corpus"
        shutil.rmtree(project, ignore_errors=True)
        write_corpus(project, random.Random(seed))
        command = ("prepare", "corpus.yaml", "--processes", "1")
        outcome = run_rota(command, project, processor_seconds=SECONDS)
        self.counts.add("bad input: corpus", judged(outcome), f"seed {seed}: {outcome.code}: {outcome.output[-400:]!r}")
