"""Runs made by hand for the tests of exports: a vocabulary, and a small network that has learned a toy language."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rota.config import parse_config
from rota.data.subwords import Subwords, SubwordsConfig
from rota.runs.checkpoints import Checkpoints
from rota.student.config import StudentConfig
from rota.student.nmt import build_student
from rota.types import Batch, State

LANGUAGES = ("az", "no", "pt_br")
WORDS = {"dəniz": "sea", "göy": "sky", "himmel": "heaven", "høy": "high", "céu": "blue", "largo": "wide", "é": "is"}
STEPS = (20, 40, 60, 80, 100)
SENTENCES = [
    "dəniz göy",
    "largo",
    "",
    "céu é largo dəniz é largo himmel é høy göy é largo céu é largo dəniz",
    "göy  dəniz\tvə __az__ é </s> !",
    "  ",
    "水 é 水",
    "himmel é høy",
]


@dataclass
class Saved:
    """A part that is nothing but its state."""

    state: State

    def state_dict(self) -> State:
        return self.state

    def load_state_dict(self, state: State) -> None:
        self.state = state


def make_run(folder: Path, *, text: str = "raw", tied: bool = True, steps: Sequence[int] = STEPS[-1:]) -> Path:
    """A run folder with checkpoints of a network that translates word for word, one for each of ``steps``."""
    subwords, networks = learn(text, tied)
    folder.mkdir(parents=True)
    subwords.save(folder / "subwords.json")
    config = parse_config(
        {
            "name": "small",
            "data": {"corpus": "synthetic"},
            "student": student_config(tied).model_dump(mode="json"),
            "teacher": {"name": "temperature", "temperature": 3},
            "training": {"steps": STEPS[-1], "tokens": 200},
        }
    )
    sizes = {"az": 1200, "no": 25_000, "pt_br": 9000}
    about = {"config": config.dump(), "data": {"low_resource": ["az"], "sizes": sizes}}
    (folder / "run.json").write_text(json.dumps(about))
    for step in steps:
        Checkpoints(folder / "checkpoints").save(step, {"student": Saved({"network": networks[step]})})
    return folder


def student_config(tied: bool) -> StudentConfig:
    sizes: dict[str, Any] = {"width": 32, "heads": 2, "feedforward": 48, "encoder_layers": 1, "decoder_layers": 2}
    learning = {"dropout": 0.0, "learning_rate": {"peak": 0.01}, "lr_warmup": 10}
    return StudentConfig.model_validate({**sizes, **learning, "tie_embeddings": tied})


@cache
def learn(text: str, tied: bool) -> tuple[Subwords, dict[int, dict[str, torch.Tensor]]]:
    """The vocabulary, and the networks of a short training by step; it takes a second."""
    rng = np.random.default_rng(1)
    sources = [list(rng.choice(list(WORDS), size=rng.integers(1, 9))) for _ in range(24)]
    pairs = [(" ".join(source), " ".join(WORDS[word] for word in source)) for source in sources]
    lines = [*(line for pair in pairs for line in pair), "və !"] * 2
    subwords = Subwords.train(lines, LANGUAGES, SubwordsConfig(size=330, text=text))
    student = build_student(student_config(tied), vocabulary=subwords.vocabulary, steps=STEPS[-1], seed=1)
    batches = [batch_of(subwords, language, pairs) for language in LANGUAGES]
    networks = {}
    for step in range(1, STEPS[-1] + 1):
        student.update([batches[step % len(batches)]])
        if step in STEPS:
            networks[step] = {name: tensor.clone() for name, tensor in student.network.state_dict().items()}
    return subwords, networks


def batch_of(subwords: Subwords, language: str, pairs: Sequence[tuple[str, str]]) -> Batch:
    sources = subwords.encode_sources(language, [source for source, _ in pairs])
    targets = subwords.encode_targets([target for _, target in pairs])
    return Batch(
        language,
        np.concatenate(sources),
        np.array([len(source) for source in sources]),
        np.concatenate(targets),
        np.array([len(target) for target in targets]),
        {language: sum(map(len, targets))},
    )
