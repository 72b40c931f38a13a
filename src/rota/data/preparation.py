"""The stages of a preparation: clean, learn subwords, encode, put together. What an earlier attempt did is taken up."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import compress
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from rota.data.cleaning import KEPT, TOO_LONG
from rota.data.corpus import SPLITS, Corpus, ParallelText, Split
from rota.data.digests import pack, unpack
from rota.data.manifest import Counts, InputFile
from rota.data.partial import Partial, Result, Unit, written
from rota.data.recipe import Recipe
from rota.data.sources import low_resource
from rota.data.store import SUBWORDS, StoreWriter
from rota.data.subwords import Subwords, SubwordsConfig, sample_lines
from rota.data.units import GUARD, Tell, Workshop, read_encoded, skip_mark
from rota.data.workers import Workers, cores
from rota.settings import ConfigError
from rota.types import Arm, IntArray

Progress = Callable[[str, int, int | None], None]
"""Called as ``progress(stage, done, total)``; the total is ``None`` while it is not known."""

PIECE: Final = 250_000  # pairs encoded as one unit: some seconds, and 30 MB of arrays
WORTH_PROCESSES: Final = 8_000_000  # bytes of training text, some 60k pairs; less is done before others have started
_UNPACKED: Final = 3  # bytes of text for a byte of gzip, roughly


class Doing(Protocol):
    """Whoever does units: this process or several others."""

    def do(self, units: Sequence[Unit], tell: Tell) -> None: ...


class _Here:
    """This process itself."""

    def __init__(self, workshop: Workshop) -> None:
        self._workshop = workshop

    def do(self, units: Sequence[Unit], tell: Tell) -> None:
        for unit in units:
            self._workshop.do(unit, tell)


class Preparation:
    """From an open corpus to a data folder; text is streamed, never held as a whole.

    ``processes``: ``None`` for one per core, if the corpus is large enough to be worth starting them. Whatever their
    number, and however often the work was interrupted, the data are the same to the byte.
    """

    def __init__(
        self, recipe: Recipe, corpus: Corpus, folder: Path, *, cache: Path, processes: int | None, progress: Progress
    ) -> None:
        self._recipe, self._corpus, self._cache = recipe, corpus, cache
        self._partial = Partial(folder, recipe)
        self._progress = progress
        self._processes = _suitable(corpus) if processes is None else processes
        self._results: dict[Unit, Result] = {}

    def run(self) -> Path:
        """The complete data folder, inside the partial one."""
        inputs = self._partial.open(list(_files(self._corpus)))
        with ExitStack() as stack:
            doing = self._doing(stack)
            self._clean(doing)
            subwords = self._learn_subwords()
            self._encode(doing)
        return self._put_together(subwords.vocabulary, inputs)

    def _doing(self, stack: ExitStack) -> Doing:
        if self._processes == 1:
            return _Here(Workshop(self._recipe, self._corpus, self._partial, PIECE))
        places = {"cache": str(self._cache), "folder": str(self._partial.folder)}
        about = {"recipe": self._recipe.as_settings(), "piece": PIECE, **places}
        return stack.enter_context(Workers(self._processes, about))

    def _do(self, doing: Doing, stage: str, units: Sequence[Unit], total: int | None) -> None:
        """All units of a stage; those that were done before an interruption are not done again."""
        known = {unit: result for unit in units if (result := self._partial.result(unit)) is not None}
        done = sum(result["pairs"] for unit, result in self._results.items() if unit.stage == units[0].stage)

        def tell(pairs: int) -> None:
            nonlocal done
            done += pairs
            self._progress(stage, done, total)

        tell(sum(result["pairs"] for result in known.values()))
        missing = [unit for unit in units if unit not in known]
        doing.do(missing, tell)
        for unit in missing:
            result = self._partial.result(unit)
            assert result is not None, f"{unit.name} left no result"
            known[unit] = result
        self._results |= known

    def _clean(self, doing: Doing) -> None:
        # Dev and test sets of all languages first: their English must not be in any training text.
        held_out = [Unit("clean", split, arm) for split in ("dev", "test") for arm in self._corpus]
        self._do(doing, "cleaning", held_out, None)
        guard = set().union(*(unpack(bytes.fromhex(self._results[unit][GUARD])) for unit in held_out))
        with written(self._partial.folder / GUARD) as (file,):
            file.write(pack(guard))
        train = [Unit("clean", "train", arm) for arm in self._corpus]
        # The largest first: the others fill the time of whoever is not busy with it.
        self._do(doing, "cleaning", sorted(train, key=lambda unit: -_size(self._corpus[unit.arm]["train"])), None)

    def _learn_subwords(self) -> Subwords:
        self._progress("learning subwords", 0, None)
        path = self._partial.folder / SUBWORDS
        if not path.exists():
            part = path.with_suffix(".part")
            Subwords.train(self._sample(), tuple(self._corpus), self._recipe.subwords).save(part)
            part.replace(path)
        return Subwords.load(path)

    def _sample(self) -> Iterator[str]:
        """Both sides of as many training pairs of each language, those of small ones more than once."""
        rng = np.random.default_rng(self._recipe.seed)
        for arm in self._corpus:
            unit = Unit("clean", "train", arm)
            available = self._results[unit]["pairs"]
            chosen = np.bincount(sample_lines(available, self._recipe.subwords.lines, rng), minlength=available)
            for path in self._partial.text(unit):
                yield from _repeated(path, chosen)

    def _encode(self, doing: Doing) -> None:
        units = [unit for split in SPLITS for arm in self._corpus for unit in self._pieces(split, arm)]
        total = sum(result["pairs"] for unit, result in self._results.items() if unit.stage == "clean")
        self._do(doing, "encoding", units, total)
        for arm in self._corpus:
            left = sum(self._results[unit]["kept"] for unit in self._pieces("train", arm))
            _require_some_left(arm, left, self._recipe.subwords)

    def _pieces(self, split: Split, arm: Arm) -> list[Unit]:
        cleaned = self._results[Unit("clean", split, arm)]
        return [Unit("encode", split, arm, piece) for piece in range(len(cleaned["pieces"]))]

    def _put_together(self, vocabulary: int, inputs: dict[str, InputFile]) -> Path:
        ready = self._partial.empty_folder("ready")
        self._copy_texts(ready)
        with StoreWriter(ready, tuple(self._corpus), vocabulary) as writer:
            self._append_pieces(writer)
            writer.finish(
                low_resource=low_resource(self._recipe.corpus, writer.sizes),
                target=self._recipe.corpus.target,
                cleaning=self._counts(),
                settings=self._recipe.as_settings(),
                inputs=inputs,
            )
        return ready

    def _copy_texts(self, ready: Path) -> None:
        """Not moved: whoever takes up this preparation needs them where they are."""
        held_out = (Unit("clean", split, arm) for split in ("dev", "test") for arm in self._corpus)
        texts = (path for unit in held_out for path in self._partial.text(unit))
        for path in (self._partial.folder / SUBWORDS, *texts):
            copy = ready / path.relative_to(self._partial.folder)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)

    def _append_pieces(self, writer: StoreWriter) -> None:
        units = [unit for split in SPLITS for arm in self._corpus for unit in self._pieces(split, arm)]
        done, total = 0, sum(self._results[unit]["pairs"] for unit in units)
        for unit in units:
            self._progress("putting together", done, total)
            result = self._results[unit]
            source, target = read_encoded(self._partial.encoded(unit), result["sides"], writer.vocabulary)
            writer.append(unit.split, unit.arm, source, target)
            done += result["pairs"]
        self._progress("putting together", done, total)

    def _counts(self) -> Counts:
        """As cleaning counted, with the pairs of too many subwords moved to the others that were too long."""
        counts: Counts = {arm: {} for arm in self._corpus}
        for split in ("dev", "test", "train"):
            for arm in self._corpus:
                dropped = sum(self._dropped(unit) for unit in self._pieces(split, arm))
                of = counts[arm][split] = dict(self._results[Unit("clean", split, arm)]["counts"])
                if dropped:
                    of[TOO_LONG] += dropped
                    of[KEPT] -= dropped
        return counts

    def _dropped(self, unit: Unit) -> int:
        result = self._results[unit]
        return int(result["pairs"] - result["kept"])


def _files(corpus: Corpus) -> dict[Path, None]:
    texts = (text for splits in corpus.values() for text in splits.values())
    return dict.fromkeys(path for text in texts for path in text.files)


def _size(text: ParallelText) -> int:
    """Bytes of text, roughly."""
    return text.size + sum(path.stat().st_size * (_UNPACKED if path.suffix == ".gz" else 1) for path in text.files)


def _suitable(corpus: Corpus) -> int:
    """The cores at hand, or one where others would hardly have started when the work is done."""
    # An archive that every language is read from counts once.
    files = {path for splits in corpus.values() for path in splits["train"].files}
    size = _size(ParallelText("all", tuple(files), lambda: iter(())))
    size += sum(splits["train"].size for splits in corpus.values())
    return cores() if size >= WORTH_PROCESSES else 1


def _repeated(path: Path, times: IntArray) -> Iterator[str]:
    """Each line as often as ``times`` says; those that are not wanted are not decoded."""
    wanted = times > 0
    with path.open("rb") as file:
        skip_mark(file)
        for line, count in zip(compress(file, wanted.tobytes()), times[wanted].tolist(), strict=True):
            yield from (line.decode().removesuffix("\n"),) * count


def _require_some_left(arm: Arm, left: int, config: SubwordsConfig) -> None:
    if not left:
        limit = f"subwords.max_subwords {config.max_subwords}"
        raise ConfigError(f"all training pairs of {arm!r} are longer than {limit}; raise it, or remove the language")
