"""A trained run as a translator, and its translations of dev and test sets as files, which are made once.

Text goes in, its translation comes out: by one checkpoint, by the average of several, or by an ensemble.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from rota.data.corpora.parallel import tidy
from rota.data.subwords import Subwords
from rota.evaluation.config import EvaluationConfig
from rota.files import damaged, short_hash, write_atomically
from rota.runs import Entry, Run
from rota.runs.standing import Combine, Model, require_selected
from rota.student.config import StudentConfig
from rota.student.hardware import find_device, memory_for
from rota.student.search import EncoderCache, Part, Search, translate_parts
from rota.student.transformer import Transformer
from rota.types import Arm, IntArray

SELECTION_PART = "dev-selection"
"""The dev sentences that choose checkpoints, in file names: not the whole of ``dev``."""

Progress = Callable[[str, int, int], None]
"""Is called with what is being done, sentences done, and sentences in all."""

_REMEDY = "use fewer (--combine last), or leave the GPU out with CUDA_VISIBLE_DEVICES=-1"


@dataclass(frozen=True)
class Text:
    """Sentences to translate together, each from its language into another (None: the only one that there is)."""

    lines: Sequence[str]
    languages: Sequence[str]
    into: Sequence[str | None]


class Translator:
    """Networks that share one vocabulary; several of them are an ensemble."""

    def __init__(self, networks: Sequence[Transformer], subwords: Subwords, targets: Sequence[str] = ("en",)) -> None:
        self.networks, self.subwords = networks, subwords
        self.targets = tuple(targets)  # the languages that it translates into
        self.processes = 1
        """That translate at the same time, if the networks are on a CPU: :func:`rota.student.search.translate_parts`"""

    @classmethod
    def load(
        cls,
        run: Path | str,
        *,
        step: int | None = None,
        steps: Sequence[int] | None = None,
        combine: Combine = "last",
        device: str = "auto",
    ) -> Translator:
        """The checkpoint of ``step``, by default the last one; or the checkpoints of ``steps`` put together."""
        if step is not None and steps is not None:
            raise ValueError(f"step {step} and steps {list(steps)} name two models; give one of them")
        loader = Loader(run, device)
        return loader.translator(steps or [loader.run.checkpoint(step).step], combine)

    @classmethod
    def load_selected(cls, run: Path | str, *, device: str = "auto") -> Translator:
        """The checkpoints that ``rota evaluate --select`` found best, put together as they were judged."""
        model = require_selected(Run(run))
        return cls.load(run, steps=model.steps, combine=model.combine, device=device)

    def translate(
        self,
        texts: Sequence[str],
        language: str | Sequence[str],
        *,
        to: str | Sequence[str] | None = None,
        beam: int = 5,
        length_penalty: float = 1.0,
        progress: Callable[[int], None] | None = None,
        cache: EncoderCache | None = None,
    ) -> list[str]:
        """Translations in the order of ``texts``, blank for blank; ``progress`` is told how many were done just now.

        ``language`` is that of all texts, or one for each, as is ``to``, the language to translate into; it can be left
        out if the model has one alone. ``cache``: see :func:`rota.student.search.translate`.
        """
        languages = [language] * len(texts) if isinstance(language, str) else list(language)
        into = [to] * len(texts) if isinstance(to, str) or to is None else list(to)
        told = None if progress is None else lambda _, finished: progress(finished)
        search = Search(beam=beam, length_penalty=length_penalty)
        (found,) = self.translate_each([Text(texts, languages, into)], search, progress=told, cache=cache)
        return found

    def translate_each(
        self,
        texts: Sequence[Text],
        search: Search,
        *,
        progress: Callable[[int, int], None] | None = None,
        cache: EncoderCache | None = None,
    ) -> Generator[list[str], None, None]:
        """The translations of one text after the other, as in :func:`rota.student.search.translate_parts`."""
        encoded = [self._part(text) for text in texts]
        parts = [part for _, part in encoded]
        with closing(self.find(parts, search, progress, cache)) as found:
            for text, (indices, _), ids in zip(texts, encoded, found, strict=True):
                translations = [""] * len(text.lines)
                for index, line in zip(indices, self.subwords.decode_batch(ids), strict=True):
                    translations[index] = line
                yield translations

    def find(
        self,
        parts: Sequence[Part],
        search: Search,
        progress: Callable[[int, int], None] | None,
        cache: EncoderCache | None,
    ) -> Generator[Sequence[Sequence[int] | IntArray], None, None]:
        """The ids of the best translations of one part after the other."""
        found = translate_parts(self.networks, parts, search, progress=progress, cache=cache, processes=self.processes)
        with closing(found):
            for hypotheses in found:
                yield [best.ids for best in hypotheses]

    def _part(self, text: Text) -> tuple[list[int], Part]:
        """Indices of the lines that are not blank, and what is searched for."""
        tags = {each: self.subwords.target_tag(each, self.targets) for each in dict.fromkeys(text.into)}
        indices, sources = self._encode([tidy(line) for line in text.lines], text.languages)
        first = [tag for index in indices if (tag := tags[text.into[index]]) is not None]
        return indices, Part(sources, first or None)

    def _encode(self, texts: Sequence[str], languages: Sequence[str]) -> tuple[list[int], list[IntArray]]:
        """Indices of the texts that are not blank, and their token ids."""
        everything: dict[int, IntArray] = {}
        for language in dict.fromkeys(languages):
            indices = [index for index, text in enumerate(texts) if text and languages[index] == language]
            encoded = self.subwords.encode_sources(language, [texts[index] for index in indices])
            everything.update(zip(indices, map(np.asarray, encoded), strict=True))
        return list(everything), list(everything.values())


class Loader:
    """Reads networks of one run; those of the last few steps stay in memory, because windows overlap."""

    def __init__(self, run: Path | str, device: str = "auto", keep: int = 1) -> None:
        self.run, self.keep = Run(run), keep
        self.run.check_subwords()
        self.config = StudentConfig.model_validate(self.run.setting("config.student"))
        self.subwords = Subwords.load(self.run.subwords_path)
        self.device = find_device(device)
        self._networks: dict[int, Transformer] = {}

    def translator(self, steps: Sequence[int], combine: Combine = "last") -> Translator:
        """The checkpoints of ``steps`` as one model; ``last`` takes the last of them."""
        if combine not in get_args(Combine):
            raise ValueError(f"combine is {combine!r}; it is one of {', '.join(get_args(Combine))}")
        chosen = steps[-1:] if combine in ("last", "moving-average") else steps
        with memory_for(lambda: f"loading {len(chosen)} of the checkpoints in {self.run}; {_REMEDY}."):
            if combine == "moving-average":
                network = self._make(self.run.checkpoint(chosen[0]).moving_average())
                return Translator([network], self.subwords, self.run.targets)
            networks = [self.network(step) for step in chosen]
            if combine == "average" and len(networks) > 1:
                networks = [self._make(average_weights([network.state_dict() for network in networks]))]
        return Translator(networks, self.subwords, self.run.targets)

    def weights(self, model: Model) -> str:
        """A short name of the weights that a model is made of, for records: other weights of the same steps differ."""
        average = model.combine == "moving-average"
        steps = model.steps[-1:] if model.combine in ("last", "moving-average") else model.steps
        return self.run.checkpoints().weights_of(steps, moving_average=average)

    def network(self, step: int) -> Transformer:
        if step not in self._networks:
            self._networks[step] = self._make(self.run.checkpoint(step).network())
        self._networks[step] = self._networks.pop(step)  # the newest request goes last
        while len(self._networks) > self.keep:
            del self._networks[next(iter(self._networks))]
        return self._networks[step]

    def _make(self, weights: dict[str, torch.Tensor]) -> Transformer:
        network = Transformer(self.config.shape(self.subwords.vocabulary))
        network.load_state_dict(weights)
        return network.to(self.device).eval()


def average_weights(states: Sequence[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """The mean of every weight, summed in float64."""
    means = {}
    for name, first in states[0].items():
        total = first.double()
        for other in states[1:]:
            total = total + other[name].double()
        means[name] = (total / len(states)).to(first.dtype)
    return means


class Counter:
    """Adds up the sentences just translated and tells a progress bar; a total of 0 is not worth a bar."""

    def __init__(self, stage: str, total: int, progress: Progress) -> None:
        self.stage, self.total, self.done, self._progress = stage, total, 0, progress

    def add(self, finished: int) -> None:
        self.reach(self.done + finished)

    def reach(self, done: int) -> None:
        self.done = done
        if self.total:
            self._progress(self.stage, done, self.total)


def translation_path(run: Run, model: Model, part: str, arm: Arm, search: EvaluationConfig) -> Path:
    """One sentence a line, in the order of the set; ``part`` is ``dev``, ``test`` or the selection part of dev."""
    engine = "" if search.engine == "rota" else f"-{search.engine}"
    name = f"{model.name}.{part}.{arm}.beam{search.beam}-{search.length_penalty:g}{engine}.txt"
    return run.translations_folder / name


class Translations:
    """One part of a run's dev or test sets, translated by one search; what is there already is not made again.

    ``translations.jsonl`` has the hash of each file, and of the weights and the text that it was made from. A file, or
    weights, that were changed since are refused: their scores would be those of another model.
    """

    def __init__(
        self,
        loader: Loader,
        part: str,
        config: EvaluationConfig,
        *,
        cache: EncoderCache | None = None,
        processes: int = 1,
        together: bool = False,
        convert: Callable[[Translator], Translator] | None = None,
    ) -> None:
        """``together``: languages share batches, and all files are written at the end; for small sets.

        ``convert``: makes the translator of another engine.
        """
        self.loader, self.part, self.config, self._cache = loader, part, config, cache
        self._processes, self._together, self._convert = processes, together, convert

    def of(
        self, model: Model, texts: Mapping[Arm, Sequence[str]], advance: Callable[[Arm, int], None]
    ) -> dict[Arm, Path]:
        """Files with the translations of every language, each written when it is complete.

        ``advance`` is told how many sentences were just translated; of languages together it names the first.
        """
        run = self.loader.run
        paths = {arm: translation_path(run, model, self.part, arm, self.config) for arm in texts}
        weights = self.loader.weights(model)
        made_from = {arm: {"weights": weights, "source": text_hash(each)} for arm, each in texts.items()}
        missing = {arm: texts[arm] for arm, path in paths.items() if not path.exists()}
        known = {entry["file"]: entry for entry in run.read("translations")}
        for arm, path in paths.items():
            if arm not in missing and _name(run, path) in known:
                _check_unchanged(path, known[_name(run, path)], made_from[arm])
        with closing(self._translate(model, missing, advance)) as translated:
            for arm, found in translated:
                lines = (" ".join(line.split()) for line in found)  # a model may produce a line break
                text = "".join(f"{line}\n" for line in lines)
                entry = {"file": _name(run, paths[arm]), "hash": short_hash(text.encode()), **made_from[arm]}
                run.append("translations", [entry] if known.get(entry["file"]) != entry else [])
                write_atomically(paths[arm], text)  # after the entry: a process that is killed makes the file again
        return paths

    def _translate(
        self, model: Model, texts: Mapping[Arm, Sequence[str]], advance: Callable[[Arm, int], None]
    ) -> Generator[tuple[Arm, list[str]], None, None]:
        if not texts:
            return
        arms = [list(texts)] if self._together else [[arm] for arm in texts]
        translator = self.loader.translator(model.steps, model.combine)
        translator.processes = self._processes
        if self._convert is not None:
            translator = self._convert(translator)
        found = translator.translate_each(
            [self._text({arm: texts[arm] for arm in group}) for group in arms],
            Search(beam=self.config.beam, length_penalty=self.config.length_penalty),
            progress=lambda number, finished: advance(arms[number][0], finished),
            cache=self._cache,
        )
        for group, translations in zip(arms, found, strict=True):
            lines = iter(translations)
            for arm in group:
                yield arm, list(islice(lines, len(texts[arm])))

    def _text(self, texts: Mapping[Arm, Sequence[str]]) -> Text:
        routes = {arm: self.loader.run.route(arm) for arm in texts}
        return Text(
            [line for each in texts.values() for line in each],
            [routes[arm].source for arm, each in texts.items() for _ in each],
            [routes[arm].target for arm, each in texts.items() for _ in each],
        )


def _name(run: Run, path: Path) -> str:
    return path.relative_to(run.folder).as_posix()


def _check_unchanged(path: Path, entry: Entry, made_from: Mapping[str, str]) -> None:
    again = "delete it to translate again"
    if short_hash(path) != entry["hash"]:
        raise damaged(path, "it was changed after it was made", again)
    if entry["weights"] != made_from["weights"]:
        raise ValueError(f"{path} was made with other weights than the checkpoints have now; {again}")
    if entry["source"] != made_from["source"]:
        raise ValueError(f"{path} was made from other sentences than the data have now; {again}")


def text_hash(lines: Sequence[str]) -> str:
    """A short hash of some sentences, for records."""
    return short_hash("".join(f"{line}\n" for line in lines).encode())


def read_lines(path: Path) -> list[str]:
    """The translations in a file, in the order of the set."""
    return path.read_text(encoding="utf-8").split("\n")[:-1]
