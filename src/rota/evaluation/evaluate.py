"""Translate the dev or test sets of a run and score them; what has been translated already is reused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field

from rota.data.store import Store
from rota.evaluation.metrics import Score, averages, score
from rota.evaluation.translator import Translator, find_checkpoint
from rota.records import Record, read_record, write_atomically
from rota.settings import Settings
from rota.types import Arm

Progress = Callable[[Arm, int, int], None]
"""Hears (language, sentences done, sentences in all)."""


class EvaluationConfig(Settings):
    """How translations are searched for."""

    beam: int = Field(5, ge=1, description="hypotheses kept at every position; 1 is greedy")
    length_penalty: float = Field(1.0, ge=0, description="a hypothesis scores its log probability / length ** this")


@dataclass(frozen=True)
class Evaluation:
    """Scores of one checkpoint on one split: by language, then metric."""

    step: int
    split: str
    scores: Mapping[Arm, list[Score]]
    low_resource: tuple[Arm, ...]

    def values(self, metric: str) -> dict[Arm, float]:
        return {arm: found.value for arm, scores in self.scores.items() for found in scores if found.metric == metric}

    def averages(self, metric: str) -> dict[str, float]:
        return averages(self.values(metric), self.low_resource)


def evaluate(
    run: Path,
    store: Store,
    config: EvaluationConfig,
    *,
    split: Literal["dev", "test"] = "test",
    step: int | None = None,
    device: str = "auto",
    progress: Progress = lambda *_: None,
) -> Evaluation:
    """Scores of every language, also appended to ``evals.jsonl``; translations go to ``translations/``."""
    step = find_checkpoint(run, step).step
    translator: Translator | None = None
    scores: dict[Arm, list[Score]] = {}
    for arm in store.languages:
        pairs = store.text(split, arm)
        path = translation_path(run, step, split, arm, config)
        if not path.exists():
            translator = translator or Translator.load(run, step=step, device=device)
            _translate(translator, [source for source, _ in pairs], arm, path, config, progress)
        progress(arm, len(pairs), len(pairs))
        hypotheses = path.read_text(encoding="utf-8").split("\n")[:-1]
        scores[arm] = score(hypotheses, [reference for _, reference in pairs])
    evaluation = Evaluation(step, split, scores, store.low_resource)
    _record(run, evaluation, config)
    return evaluation


def translation_path(run: Path, step: int, split: str, arm: Arm, config: EvaluationConfig) -> Path:
    """One sentence a line, in the order of the dev or test set; the name says how they were searched for."""
    return run / "translations" / f"{step}.{split}.{arm}.beam{config.beam}-{config.length_penalty:g}.txt"


def _translate(
    translator: Translator, texts: list[str], arm: Arm, path: Path, config: EvaluationConfig, progress: Progress
) -> None:
    done = 0

    def count(finished: int) -> None:
        nonlocal done
        done += finished
        progress(arm, done, len(texts))

    translations = translator.translate(
        texts,
        arm,
        beam=config.beam,
        length_penalty=config.length_penalty,
        progress=count,
    )
    lines = (" ".join(line.split()) for line in translations)  # a model may produce a line break
    write_atomically(path, "".join(f"{line}\n" for line in lines))


def _record(run: Path, evaluation: Evaluation, config: EvaluationConfig) -> None:
    """Every score once, however often the evaluation is repeated."""
    record = Record(run / "evals.jsonl")
    known = list(read_record(record.path))
    head = {"step": evaluation.step, "split": evaluation.split, "search": config.model_dump()}
    for arm, scores in evaluation.scores.items():
        for found in scores:
            entry = {"language": arm, "metric": found.metric, "score": found.value, "signature": found.signature}
            if {**head, **entry} not in known:
                record.write({**head, **entry})
    record.close()
