"""From a corpus to a data folder, in one go or not at all; a second time it finds nothing to do."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np

from rota.data.cleaning import KEPT, TOO_LONG, Cleaner, CleaningConfig
from rota.data.corpus import SPLITS, Corpus, CorpusConfig, Pair, Split, read_lines
from rota.data.lock import alone_in
from rota.data.manifest import MANIFEST, Counts, InputFile, Manifest
from rota.data.sources import low_resource, open_corpus
from rota.data.store import SUBWORDS, Store, StoreWriter, text_names
from rota.data.subwords import Subwords, SubwordsConfig, sample_lines
from rota.settings import ConfigError, Settings
from rota.types import Arm

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int | None], None]
"""Called as ``progress(stage, done, total)``; the total is ``None`` while it is not known."""

_CHUNK: Final = 10_000  # pairs encoded at once: some 30 MB of Python lists


@dataclass(frozen=True)
class Recipe:
    """All that decides what the data folder will contain, next to the content of the input files."""

    corpus: CorpusConfig
    cleaning: CleaningConfig
    subwords: SubwordsConfig
    seed: int  # chooses the lines the subwords are learned from

    def as_settings(self) -> dict[str, Any]:
        parts: dict[str, Settings] = {"corpus": self.corpus, "cleaning": self.cleaning, "subwords": self.subwords}
        return {name: part.model_dump(mode="json") for name, part in parts.items()} | {"seed": self.seed}


def prepare(
    corpus: CorpusConfig,
    cleaning: CleaningConfig,
    subwords: SubwordsConfig,
    folder: Path,
    *,
    cache: Path,
    seed: int,
    again: bool = False,
    progress: Progress | None = None,
) -> Store:
    """Clean, learn subwords, encode, and put the result in ``folder``, which appears only when it is complete.

    A folder that was prepared from the same settings and inputs is opened as it is; if something changed, that is an
    error unless ``again`` says to replace the folder. ``cache`` is where named corpora keep what they fetched.
    Of several processes that prepare the same folder, one does and the others wait for it.
    """
    recipe = Recipe(corpus, cleaning, subwords, seed)
    if _is_prepared(folder) and not again:
        return _open_unchanged(folder, recipe)
    with alone_in(folder):
        if _is_prepared(folder) and not again:  # by the process that we waited for
            return _open_unchanged(folder, recipe)
        _prepare(recipe, folder, cache, progress or _silent)
    return Store.open(folder)


def _is_prepared(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def _prepare(recipe: Recipe, folder: Path, cache: Path, progress: Progress) -> None:
    _require_replaceable(folder)
    partial = _beside(folder, "partial")
    _remove(partial)  # a preparation that was killed may have left it
    partial.mkdir()
    try:
        _Preparation(recipe, open_corpus(recipe.corpus, cache), partial, progress).run()
        _move(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _open_unchanged(folder: Path, recipe: Recipe) -> Store:
    manifest = Manifest.load(folder)
    change = _changed_setting(manifest.settings, recipe.as_settings()) or _changed_input(manifest.inputs)
    if change is not None:
        raise ConfigError(f"{folder} was prepared otherwise: {change}; use --again to replace it, or another folder")
    return Store.open(folder)


def _changed_setting(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    before, after = dict(_leaves(old)), dict(_leaves(new))
    for name in before | after:
        if before.get(name) != after.get(name):
            return f"{name} changed from {before.get(name)} to {after.get(name)}"
    return None


def _leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _changed_input(inputs: Mapping[str, InputFile]) -> str | None:
    """Of the files that the config names, which are those it named then, for no setting changed."""
    gone = [name for name in inputs if not Path(name).is_file()]
    if gone:
        # Prepared data stand on their own: they may be moved to where the text is not.
        others = f" (so are {len(gone) - 1} other files)" if len(gone) > 1 else ""
        logger.warning("%s is gone%s: cannot tell whether it changed since the data were prepared", gone[0], others)
    for name in (name for name in inputs if name not in gone):
        if not inputs[name].is_still(Path(name)):
            return f"the content of {name} changed"
    return None


def _require_replaceable(folder: Path) -> None:
    """Only prepared data, or nothing, may be replaced: a mistyped path must not cost anybody their files."""
    if not folder.exists() or _is_prepared(folder):
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise ConfigError(f"{folder} exists and is no prepared data; choose another folder, or remove it yourself")


def _move(partial: Path, folder: Path) -> None:
    replaced = _beside(folder, "replaced")
    _remove(replaced)
    if folder.exists():
        folder.rename(replaced)
    partial.rename(folder)
    _remove(replaced)


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}.{what}")


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _silent(stage: str, done: int, total: int | None) -> None:
    """For callers who do not want to know."""


class _Preparation:
    """The steps between an open corpus and a complete folder; text is streamed, never held as a whole."""

    def __init__(self, recipe: Recipe, corpus: Corpus, folder: Path, progress: Progress) -> None:
        self._recipe = recipe
        self._corpus = corpus
        self._folder = folder
        self._progress = progress
        self._cleaner = Cleaner(recipe.cleaning)

    def run(self) -> None:
        inputs = self._inputs()
        # Dev and test sets of all languages first: their English must not be in any training text.
        self._report("cleaning", self._clean(("dev", "test", "train")), None)
        subwords = self._learn_subwords()
        counts: Counts = {arm: {split: dict(c) for split, c in of.items()} for arm, of in self._cleaner.counts.items()}
        with StoreWriter(self._folder, tuple(self._corpus), subwords.vocabulary) as writer:
            total = sum(kept[KEPT] for splits in counts.values() for kept in splits.values())
            self._report("encoding", self._encode(subwords, writer, counts), total)
            writer.finish(
                low_resource=low_resource(self._recipe.corpus, writer.sizes),
                target=self._recipe.corpus.target,
                cleaning=counts,
                settings=self._recipe.as_settings(),
                inputs=inputs,
            )

    def _inputs(self) -> dict[str, InputFile]:
        """Taken before anything is read: a file that changes meanwhile counts as changed."""
        texts = (text for splits in self._corpus.values() for text in splits.values())
        files = dict.fromkeys(path for text in texts for path in text.files)
        return {str(path): InputFile.of(path) for path in files}

    def _report(self, stage: str, steps: Iterator[int], total: int | None) -> None:
        """Run the steps, each of which says how many pairs it has done."""
        done = 0
        self._progress(stage, done, total)
        for pairs in steps:
            done += pairs
            self._progress(stage, done, total)

    def _clean(self, splits: Iterable[Split]) -> Iterator[int]:
        for split in splits:
            for arm in self._corpus:
                yield from self._clean_one(split, arm)
                _require_something(arm, split, self._corpus[arm][split].origin, self._cleaner.counts[arm][split])

    def _clean_one(self, split: Split, arm: Arm) -> Iterator[int]:
        source_path, target_path = self._text_paths(split, arm)
        source_path.parent.mkdir(exist_ok=True)
        pairs = self._corpus[arm][split].read()
        clean = self._cleaner
        kept = clean.clean_train(arm, pairs) if split == "train" else clean.clean_held_out(arm, split, pairs)
        with _writable(source_path) as sources, _writable(target_path) as targets:
            for chunk in _chunks(kept):
                sources.writelines(f"{source}\n" for source, _ in chunk)
                targets.writelines(f"{target}\n" for _, target in chunk)
                yield len(chunk)

    def _learn_subwords(self) -> Subwords:
        self._progress("learning subwords", 0, None)
        subwords = Subwords.train(self._sample(), tuple(self._corpus), self._recipe.subwords)
        subwords.save(self._folder / SUBWORDS)
        return subwords

    def _sample(self) -> Iterator[str]:
        """Both sides of as many training pairs of each language, those of small ones more than once."""
        rng = np.random.default_rng(self._recipe.seed)
        for arm in self._corpus:
            available = self._cleaner.counts[arm]["train"][KEPT]
            chosen = np.bincount(sample_lines(available, self._recipe.subwords.lines, rng), minlength=available)
            for path in self._text_paths("train", arm):
                for text, times in zip(read_lines(path), chosen.tolist(), strict=True):
                    yield from (text,) * times

    def _encode(self, subwords: Subwords, writer: StoreWriter, counts: Counts) -> Iterator[int]:
        for split in SPLITS:
            for arm in self._corpus:
                paths = self._text_paths(split, arm)
                for chunk in _chunks(zip(*map(read_lines, paths), strict=True)):
                    self._encode_chunk(split, arm, chunk, subwords, writer, counts[arm][split])
                    yield len(chunk)
                if split == "train":
                    for path in paths:
                        path.unlink()
                    _require_some_left(arm, counts[arm][split], self._recipe.subwords)

    def _encode_chunk(
        self, split: Split, arm: Arm, chunk: list[Pair], subwords: Subwords, writer: StoreWriter, counts: dict[str, int]
    ) -> None:
        sources = subwords.encode_sources(arm, [source for source, _ in chunk])
        targets = subwords.encode_targets([target for _, target in chunk])
        if split == "train":
            limit = self._recipe.subwords.max_subwords
            fitting = [pair for pair in zip(sources, targets, strict=True) if fits(*pair, limit)]
            counts[TOO_LONG] += len(chunk) - len(fitting)
            counts[KEPT] -= len(chunk) - len(fitting)
            sources, targets = [source for source, _ in fitting], [target for _, target in fitting]
        writer.append(split, arm, sources, targets)

    def _text_paths(self, split: Split, arm: Arm) -> tuple[Path, Path]:
        """Source and target; the training text is there only until it is encoded."""
        source, target = text_names(split, arm, self._recipe.corpus.target)
        return self._folder / source, self._folder / target


def fits(source: Sequence[int], target: Sequence[int], limit: int) -> bool:
    """Whether neither side has more subwords than the limit; the tag and the ends of sentences do not count."""
    return len(source) - 2 <= limit and len(target) - 1 <= limit


def _writable(path: Path) -> TextIO:
    return path.open("w", encoding="utf-8", newline="\n")


def _chunks(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    iterator = iter(pairs)
    while chunk := list(islice(iterator, _CHUNK)):
        yield chunk


def _require_something(arm: Arm, split: Split, origin: str, counts: Mapping[str, int]) -> None:
    if counts[KEPT]:
        return
    dropped = ", ".join(f"{count} {reason}" for reason, count in counts.items() if count) or "there was none"
    what = f"cleaning left nothing of {split} for {arm!r} ({dropped})"
    raise ConfigError(f"{origin}: {what}; check the text or the cleaning limits, or remove the language")


def _require_some_left(arm: Arm, counts: Mapping[str, int], config: SubwordsConfig) -> None:
    if not counts[KEPT]:
        limit = f"subwords.max_subwords {config.max_subwords}"
        raise ConfigError(f"all training pairs of {arm!r} are longer than {limit}; raise it, or remove the language")
