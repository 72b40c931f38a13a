"""From a corpus to a data folder, which is complete or not there; a second time there is nothing to do."""

from __future__ import annotations

import logging
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from rota.data.cleaning import CleaningConfig
from rota.data.corpus import CorpusConfig
from rota.data.lock import alone_in
from rota.data.manifest import MANIFEST, Manifest
from rota.data.preparation import Preparation, Progress
from rota.data.recipe import Recipe, changed_input, changed_setting
from rota.data.sources import open_corpus
from rota.data.store import Store
from rota.data.subwords import SubwordsConfig
from rota.settings import ConfigError

logger = logging.getLogger(__name__)

__all__ = ["Progress", "prepare"]


def prepare(
    corpus: CorpusConfig,
    cleaning: CleaningConfig,
    subwords: SubwordsConfig,
    folder: Path,
    *,
    cache: Path,
    seed: int,
    again: bool = False,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Store:
    """Clean, learn subwords, encode, and put the result in ``folder``, which appears only when it is complete.

    A folder that was prepared from the same settings and inputs is opened as it is; if something changed, that is an
    error unless ``again`` says to replace the folder. ``cache`` is where named corpora keep what they fetched.
    ``processes`` work on it at the same time; by default one for each core if the corpus is large, else this one alone.
    What an interrupted preparation has finished is kept beside the folder, and the next call goes on from there.
    Of several callers that prepare the same folder, one does and the others wait for it.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"processes is {processes}; it must be 1 or more")
    recipe = Recipe(corpus, cleaning, subwords, seed)
    if _is_prepared(folder) and not again:
        return _open_unchanged(folder, recipe)
    with alone_in(folder):
        if _is_prepared(folder) and not again:  # by the process that we waited for
            return _open_unchanged(folder, recipe)
        _prepare(recipe, folder, cache, processes, progress or _silent)
    return Store.open(folder)


def _is_prepared(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def _prepare(recipe: Recipe, folder: Path, cache: Path, processes: int | None, progress: Progress) -> None:
    _require_replaceable(folder)
    partial = _beside(folder, "partial")
    try:
        with _softly_terminated():
            corpus = open_corpus(recipe.corpus, cache)
            work = Preparation(recipe, corpus, partial, cache=cache, processes=processes, progress=progress)
            _move(work.run(), folder)
    except (KeyboardInterrupt, SystemExit):
        if partial.exists():
            logger.warning("stopped; what is complete is kept in %s, and the same command goes on from there", partial)
        raise
    except ValueError:
        # The remedy changes a setting or the text, and then nothing of this can be taken up.
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _remove(partial)


@contextmanager
def _softly_terminated() -> Iterator[None]:
    """SIGTERM ends the block as an exception, so that nothing is left running; where signals can be handled."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _open_unchanged(folder: Path, recipe: Recipe) -> Store:
    manifest = Manifest.load(folder)
    change = changed_setting(manifest.settings, recipe.as_settings()) or changed_input(manifest.inputs)
    if change is not None:
        raise ConfigError(
            f"{folder} was prepared otherwise: {change}; use --again to replace it, or another data.folder"
        )
    return Store.open(folder)


def _require_replaceable(folder: Path) -> None:
    """Only prepared data, or nothing, may be replaced: a mistyped path must not cost anybody their files."""
    if not folder.exists() or _is_prepared(folder):
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise ConfigError(f"{folder} exists and is no prepared data; choose another folder, or remove it yourself")


def _move(ready: Path, folder: Path) -> None:
    replaced = _beside(folder, "replaced")
    _remove(replaced)
    if folder.exists():
        folder.rename(replaced)
    ready.rename(folder)
    _remove(replaced)


def _beside(folder: Path, what: str) -> Path:
    return folder.with_name(f".{folder.name}.{what}")


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _silent(stage: str, done: int, total: int | None) -> None:
    """For callers who do not want to know."""
