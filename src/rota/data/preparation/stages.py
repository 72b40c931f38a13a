"""From a corpus to a data folder: clean, learn subwords, encode, assemble. Finished folders are opened as they are."""

from __future__ import annotations

import logging
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from itertools import compress
from pathlib import Path
from types import FrameType
from typing import Final

import numpy as np

from rota.data.corpora.directions import ranked
from rota.data.corpora.download import alone_in
from rota.data.corpora.language_files import warn_of_unused
from rota.data.corpora.parallel import (
    SPLITS,
    Corpus,
    ParallelText,
    Split,
    having,
    read_lines,
    some_of,
    unreadable,
    warn_of_headers,
)
from rota.data.corpora.sources import CorpusConfig, low_resource, open_corpus
from rota.data.preparation.cleaning import KEPT, TOO_LONG, CleaningConfig
from rota.data.preparation.digests import pack, unpack
from rota.data.preparation.folders import (
    beside,
    is_prepared,
    move,
    open_unchanged,
    remove,
    remove_leftovers,
    require_replaceable,
)
from rota.data.preparation.line_lengths import Misfit, warn_of_misfits
from rota.data.preparation.mess import KINDS_FILE, Mess, MessConfig
from rota.data.preparation.units import (
    GUARD,
    MISFIT,
    Executor,
    Partial,
    Recipe,
    Result,
    Unit,
    read_encoded,
    skip_mark,
)
from rota.data.preparation.workers import WorkerPool, cores
from rota.data.ready_made.adopting import adopt, check_codes
from rota.data.ready_made.reading import PIECES_FILE, files_of, read_ready_made
from rota.data.store import SUBWORDS, Counts, InputFile, Side, Store, StoreWriter
from rota.data.subwords import Subwords, SubwordsConfig, sample_lines
from rota.files import open_atomically
from rota.settings import ConfigError
from rota.types import Arm, IntArray

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int | None], None]
"""Called as ``progress(stage, done, total)``; the total is ``None`` while it is not known."""

PIECE: Final = 250_000  # pairs encoded as one unit: some seconds, and 30 MB of arrays
WORTH_PROCESSES: Final = 8_000_000  # bytes of training text, some 60k pairs; less is done before others have started
_UNPACKED: Final = 3  # bytes of text for a byte of gzip, approximately


def prepare(
    corpus: CorpusConfig,
    cleaning: CleaningConfig,
    subwords: SubwordsConfig,
    folder: Path,
    *,
    cache: Path,
    seed: int,
    mess: MessConfig | None = None,
    again: bool = False,
    processes: int | None = None,
    progress: Progress | None = None,
) -> Store:
    """Clean, learn subwords, encode, and put the result in ``folder``, which appears only when it is complete.

    A folder that was prepared from the same settings and inputs is opened as it is; if something changed, that is an
    error unless ``again`` says to replace the folder. ``cache`` is where named corpora keep what they fetched.
    ``processes`` work on it at the same time; by default one for each core if the corpus is large, else this one alone.
    What an interrupted preparation has finished is kept beside the folder, and the next call resumes from there.
    Of several callers that prepare the same folder, one does the work and the others wait for it.
    """
    if processes is not None and processes < 1:
        raise ValueError(f"processes is {processes}; it must be 1 or more")
    recipe = Recipe(corpus, cleaning, subwords, seed, mess)
    if is_prepared(folder) and not again:
        store = open_unchanged(folder, recipe)
        remove_leftovers(folder, recipe)
        return store
    with alone_in(folder):
        if is_prepared(folder) and not again:  # by the process that we waited for
            return open_unchanged(folder, recipe)
        _prepare(recipe, folder, cache, processes, progress or (lambda *_: None))
    return Store.open(folder)


def _prepare(recipe: Recipe, folder: Path, cache: Path, processes: int | None, progress: Progress) -> None:
    require_replaceable(folder)
    partial = beside(folder, "partial")
    try:
        with _sigterm_raises():
            corpus = open_corpus(recipe.corpus, cache)
            if recipe.mess is not None:
                recipe.mess.check(recipe.routes(having(corpus, "train")))
            warn_of_headers(_files(corpus))
            warn_of_unused(recipe.corpus)
            work = Preparation(recipe, corpus, partial, cache=cache, processes=processes, progress=progress)
            move(work.run(), folder)
    except (KeyboardInterrupt, SystemExit):
        if partial.exists():
            logger.warning("stopped; what is complete is kept in %s, and the same command resumes from there", partial)
        raise
    except ValueError:
        # The remedy changes a setting or the text, so that none of these results could be used.
        shutil.rmtree(partial, ignore_errors=True)
        raise
    remove(partial)


@contextmanager
def _sigterm_raises() -> Iterator[None]:
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


class Preparation:
    """From an open corpus to a data folder; text is streamed, never held as a whole.

    ``processes``: ``None`` for one per core, if the corpus is large enough to be worth starting them. Neither their
    number nor interruptions change a byte of the result.
    """

    def __init__(
        self, recipe: Recipe, corpus: Corpus, folder: Path, *, cache: Path, processes: int | None, progress: Progress
    ) -> None:
        self._recipe, self._corpus, self._cache = recipe, corpus, cache
        self._partial = Partial(folder, recipe)
        self._progress = progress
        self._processes = _suitable(corpus) if processes is None else processes
        self._routes = recipe.routes(corpus)
        self._results: dict[Unit, Result] = {}

    def run(self) -> Path:
        """The complete data folder, inside the partial one."""
        model = self._recipe.subwords.model
        inputs = self._partial.open([*_files(self._corpus), *(() if model is None else files_of(model))])
        if model is not None:  # a wrong code is found before anything is read
            check_codes(
                self._recipe.subwords, self._tagged_languages, {route.target for route in self._routes.values()}
            )
        with ExitStack() as stack:
            executor = self._executor(stack)
            with self._naming_all_mistakes():
                self._clean(executor)
            subwords = self._learn_subwords()
            self._encode(executor)
        return self._assemble(subwords, inputs)

    def _executor(self, stack: ExitStack) -> Executor | WorkerPool:
        if self._processes == 1:
            return Executor(self._recipe, self._corpus, self._partial, PIECE)
        folders = {"cache": str(self._cache), "folder": str(self._partial.folder)}
        about = {"recipe": self._recipe.as_settings(), "piece": PIECE, **folders}
        return stack.enter_context(WorkerPool(self._processes, about))

    def _run(self, executor: Executor | WorkerPool, stage: str, units: Sequence[Unit], total: int | None) -> None:
        """All units of a stage, except those that were done before an interruption."""
        known = {unit: result for unit in units if (result := self._partial.result(unit)) is not None}
        done = sum(result["pairs"] for unit, result in self._results.items() if unit.stage == units[0].stage)

        def advance(pairs: int) -> None:
            nonlocal done
            done += pairs
            self._progress(stage, done, total)

        advance(sum(result["pairs"] for result in known.values()))
        missing = [unit for unit in units if unit not in known]
        executor.run(missing, advance)
        for unit in missing:
            result = self._partial.result(unit)
            assert result is not None, f"{unit.name} left no result"
            known[unit] = result
        self._results |= known

    def _clean(self, executor: Executor | WorkerPool) -> None:
        # Dev and test sets of all languages first: their English must not be in any training text.
        held_out = self._held_out()
        self._run(executor, "cleaning", held_out, None)
        guard = set().union(*(unpack(bytes.fromhex(self._results[unit][GUARD])) for unit in held_out))
        with open_atomically(self._partial.folder / GUARD) as (file,):
            file.write(pack(guard))
        train = [Unit("clean", "train", arm) for arm in having(self._corpus, "train")]
        # The largest first: other processes do the small ones meanwhile.
        self._run(executor, "cleaning", sorted(train, key=lambda unit: -_size(self._corpus[unit.arm]["train"])), None)
        self._warn_of_misfits([*train, *held_out])

    def _warn_of_misfits(self, units: Sequence[Unit]) -> None:
        """Of two directions between the same languages, which have the same text, once."""
        found: dict[object, tuple[str, Misfit]] = {}
        for unit in units:
            if misfit := self._results[unit][MISFIT]:
                route, text = self._routes[unit.arm], self._corpus[unit.arm][unit.split]
                name = unit.arm if unit.split == "train" else f"{unit.arm} ({unit.split})"
                same = frozenset((route.source, route.target)), text.origin, unit.split
                found.setdefault(same, (name, Misfit(**misfit)))
        warn_of_misfits(dict(found.values()))

    @contextmanager
    def _naming_all_mistakes(self) -> Iterator[None]:
        """When a text cannot be cleaned, reads those that are not cleaned yet: whatever is wrong is in one message."""
        try:
            yield
        except ValueError as error:
            units = [Unit("clean", split, name) for split in SPLITS for name in having(self._corpus, split)]
            left = [self._corpus[unit.arm][unit.split] for unit in units if self._partial.result(unit) is None]
            others = [problem.partition("; ")[0] for problem in unreadable(left, str(error)) if problem != str(error)]
            if not others:
                raise
            raise ValueError(f"{error} (other texts cannot be used either: {some_of(others, '; ')})") from None

    def _held_out(self) -> list[Unit]:
        return [Unit("clean", split, name) for split in ("dev", "test") for name in having(self._corpus, split)]

    def _learn_subwords(self) -> Subwords:
        self._progress("learning subwords", 0, None)
        path = self._partial.folder / SUBWORDS
        if not path.exists():
            part = path.with_suffix(".part")
            config, tagged = self._recipe.subwords, self._recipe.corpus.tags_targets
            if config.model is None:
                subwords = Subwords.train(self._sample(), self._tagged_languages, config)
            else:
                texts, folder = self._texts, self._partial.folder
                subwords = adopt(config, self._tagged_languages, texts, folder, tags_targets=tagged)
            subwords.save(part)
            part.replace(path)
        return Subwords.load(path)

    @cached_property
    def _tagged_languages(self) -> list[str]:
        """The sources, and targets if there are several, or if a tokenizer that was made elsewhere wants them."""
        model, routes = self._recipe.subwords.model, self._routes.values()
        languages = [route.source for route in routes]
        if self._recipe.corpus.tags_targets or (model is not None and read_ready_made(model).tags_targets):
            languages += [route.target for route in routes]
        return list(dict.fromkeys(languages))

    def _texts(self, languages: Sequence[str] | None) -> Iterator[str]:
        """All training text in these languages; of two directions between the same ones, both."""
        for arm in having(self._corpus, "train"):
            route = self._routes[arm]
            for side, path in zip(
                (route.source, route.target), self._partial.text(Unit("clean", "train", arm)), strict=True
            ):
                if languages is None or side in languages:
                    yield from read_lines(path)

    def _sample(self) -> Iterator[str]:
        """Both sides of the same number of training pairs of each language; small languages repeat theirs.

        All arms of a language together count as its text. Of two directions between the same languages one is enough.
        """
        rng = np.random.default_rng(self._recipe.seed)
        pairs: dict[frozenset[str], tuple[str, list[Unit]]] = {}
        for arm in having(self._corpus, "train"):
            route = self._routes[arm]
            first, units = pairs.setdefault(frozenset((route.source, route.target)), (route.source, []))
            if route.source == first:
                units.append(Unit("clean", "train", arm))
        for _, units in pairs.values():
            sizes = [self._results[unit]["pairs"] for unit in units]
            lines = sample_lines(sum(sizes), self._recipe.subwords.lines, rng)
            chosen = np.split(np.bincount(lines, minlength=sum(sizes)), np.cumsum(sizes)[:-1])
            for unit, of_unit in zip(units, chosen, strict=True):
                for path in self._partial.text(unit):
                    yield from _repeated(path, of_unit)

    def _encode(self, executor: Executor | WorkerPool) -> None:
        total = sum(result["pairs"] for unit, result in self._results.items() if unit.stage == "clean")
        self._run(executor, "encoding", self._all_pieces(), total)
        for arm in having(self._corpus, "train"):
            left = sum(self._results[unit]["kept"] for unit in self._pieces("train", arm))
            _require_some_left(arm, left, self._recipe.subwords)

    def _all_pieces(self) -> list[Unit]:
        """In the order of the arrays."""
        return [unit for split in SPLITS for name in having(self._corpus, split) for unit in self._pieces(split, name)]

    def _pieces(self, split: Split, arm: Arm) -> list[Unit]:
        cleaned = self._results[Unit("clean", split, arm)]
        return [Unit("encode", split, arm, piece) for piece in range(len(cleaned["pieces"]))]

    def _assemble(self, subwords: Subwords, inputs: dict[str, InputFile]) -> Path:
        ready = self._partial.empty_folder("ready")
        self._copy_texts(ready)
        mess = self._mess(subwords)
        with StoreWriter(ready, having(self._corpus, "dev"), subwords.vocabulary) as writer:
            self._append_pieces(writer, mess)
            if mess is not None:
                warn_of_misfits(mess.misfits)
                mess.kinds(writer.sizes).tofile(ready / KINDS_FILE)
            writer.finish(
                low_resource=self._low_resource(writer.sizes),
                target=self._recipe.corpus.target,
                cleaning=self._counts(),
                settings=self._recipe.as_settings(),
                inputs=inputs,
                mess={} if mess is None else mess.counts,
                routes=self._routes if self._recipe.corpus.sources or self._recipe.corpus.directions else {},
            )
        return ready

    def _low_resource(self, sizes: Mapping[Arm, int]) -> list[Arm]:
        """The dev sets of low-resource languages; the size of a language is that of all its arms.

        Of two directions between the same languages the larger one counts; the pivot is never low-resource.
        """
        pivot, directions = self._recipe.corpus.target, dict[tuple[str, str], int]()
        for arm, size in sizes.items():
            pair = self._routes[arm].source, self._routes[arm].target
            directions[pair] = directions.get(pair, 0) + size
        pairs: dict[frozenset[str], int] = {}
        for pair, size in directions.items():
            pairs[frozenset(pair)] = max(size, pairs.get(frozenset(pair), 0))
        sets = {name: self._routes[name] for name in having(self._corpus, "dev")}
        named = ranked(sets.values(), pivot, self._recipe.corpus.only_measured)
        by_language = {each: sum(size for pair, size in pairs.items() if each in pair) for each in named}
        low = low_resource(self._recipe.corpus, by_language)
        return [name for name, route in sets.items() if route.source in low or route.target in low]

    def _mess(self, subwords: Subwords) -> Mess | None:
        if self._recipe.mess is None:
            return None

        def read(arm: Arm) -> tuple[Side, Side]:
            pieces = [self._read_encoded(unit, subwords.vocabulary) for unit in self._pieces("train", arm)]
            return Side.joined([source for source, _ in pieces]), Side.joined([target for _, target in pieces])

        arms = {arm: self._routes[arm] for arm in having(self._corpus, "train")}
        return Mess(self._recipe.mess, arms, read, subwords.tag, tags_targets=self._tags_targets(subwords))

    def _read_encoded(self, unit: Unit, vocabulary: int) -> tuple[Side, Side]:
        source, target = read_encoded(self._partial.encoded(unit), self._results[unit]["sides"], vocabulary)
        return source, target

    def _tags_targets(self, subwords: Subwords) -> bool:
        return self._recipe.corpus.tags_targets or subwords.tags_targets

    def _copy_texts(self, ready: Path) -> None:
        """Not moved: a preparation that resumes from here needs them where they are."""
        texts = (path for unit in self._held_out() for path in self._partial.text(unit))
        pieces = self._partial.folder / PIECES_FILE
        for path in (self._partial.folder / SUBWORDS, *([pieces] if pieces.is_file() else []), *texts):
            copy = ready / path.relative_to(self._partial.folder)
            copy.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, copy)

    def _append_pieces(self, writer: StoreWriter, mess: Mess | None) -> None:
        units = self._all_pieces()
        done, total = 0, sum(self._results[unit]["pairs"] for unit in units)
        for unit in units:
            self._progress("assembling", done, total)
            if mess is None or unit.split != "train" or not mess.concerns(unit.arm):
                writer.append(unit.split, unit.arm, *self._read_encoded(unit, writer.vocabulary))
            elif unit.piece == 0:  # all pieces of the language together
                writer.append(unit.split, unit.arm, *mess.pairs(unit.arm))
            done += self._results[unit]["pairs"]
        self._progress("assembling", done, total)

    def _counts(self) -> Counts:
        """As cleaning counted, with the pairs of too many subwords added to those that were too long."""
        counts: Counts = {arm: {} for arm in self._corpus}
        for split in ("dev", "test", "train"):
            for arm in having(self._corpus, split):
                dropped = sum(self._dropped(unit) for unit in self._pieces(split, arm))
                of = counts[arm][split] = dict(self._results[Unit("clean", split, arm)]["counts"])
                if dropped:
                    of[TOO_LONG] += dropped
                    of[KEPT] -= dropped
        return counts

    def _dropped(self, unit: Unit) -> int:
        result = self._results[unit]
        return int(result["pairs"] - result["kept"])


def _files(corpus: Corpus) -> list[Path]:
    texts = (text for splits in corpus.values() for text in splits.values())
    return list(dict.fromkeys(path for text in texts for path in text.files))


def _size(text: ParallelText) -> int:
    """Bytes of text, approximately."""
    return text.size + sum(path.stat().st_size * (_UNPACKED if path.suffix == ".gz" else 1) for path in text.files)


def _suitable(corpus: Corpus) -> int:
    """As many processes as cores, or one where others would hardly have started when the work is done."""
    # An archive that every language is read from counts once.
    train = [corpus[arm]["train"] for arm in having(corpus, "train")]
    files = {path for text in train for path in text.files}
    size = _size(ParallelText("all", tuple(files), lambda: iter(())))
    size += sum(text.size for text in train)
    return cores() if size >= WORTH_PROCESSES else 1


def _repeated(path: Path, times: IntArray) -> Iterator[str]:
    """Each line as often as ``times`` says; lines that are not wanted are not decoded."""
    wanted = times > 0
    with path.open("rb") as file:
        skip_mark(file)
        for line, count in zip(compress(file, wanted.tobytes()), times[wanted].tolist(), strict=True):
            yield from (line.decode().removesuffix("\n"),) * count


def _require_some_left(arm: Arm, left: int, config: SubwordsConfig) -> None:
    if not left:
        limit = f"subwords.max_subwords {config.max_subwords}"
        raise ConfigError(f"all training pairs of {arm!r} are longer than {limit}; raise it, or remove the language")
