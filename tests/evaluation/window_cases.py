"""Runs made by hand: three small languages, and checkpoints of networks with random weights."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from rota import api
from rota.config import RunConfig, parse_config
from rota.data.division import selection_part
from rota.data.store import Store
from rota.evaluation.config import EvaluationConfig
from rota.evaluation.translator import SELECTION_PART, translation_path
from rota.runs import Run
from rota.runs.checkpoints import Checkpoints
from rota.runs.records import Record
from rota.runs.standing import Model
from rota.student.transformer import Transformer
from rota.types import State

STEPS = (10, 20, 30, 40, 50, 60)
LOW, HIGH = ("lala", "lali"), ("kiki",)


@dataclass
class Saved:
    """A part that is nothing but its state."""

    state: State

    def state_dict(self) -> State:
        return self.state

    def load_state_dict(self, state: State) -> None:
        self.state = state


def make_config(data: Path, **evaluation: object) -> RunConfig:
    """Two low-resource languages and a high-resource one, with dev sets of 9, 9 and 9 sentences."""
    synthetic = {"families": {"la": {"lala": 60, "lali": 60}, "ki": {"kiki": 300}}, "dev": 9, "test": 6}
    return parse_config(
        {
            "data": {
                "corpus": "synthetic",
                "synthetic": synthetic,
                "low_resource": list(LOW),
                "subwords": {"size": 400},
                "folder": str(data),
            },
            "student": {"preset": "tiny", "width": 16, "heads": 2, "feedforward": 16, "layers": 1, "lr_warmup": 1}
            | {"tie_embeddings": False},
            "training": {"steps": 60, "tokens": 100, "threads": 1},
            "evaluation": {"beam": 2, **evaluation},
        }
    )


def make_run(folder: Path, store: Store, steps: tuple[int, ...] = STEPS, **evaluation: object) -> Path:
    """A run folder with a random network for each of ``steps``; nothing was trained."""
    api.build_loop(make_config(store.folder, **evaluation), store, folder)
    for step in steps:
        save_network(folder, step, random_network(store, seed=step))
    return folder


def random_network(store: Store, seed: int) -> Transformer:
    """Strong preferences, other ones for each seed, and an end symbol that is wanted often: it says a few words."""
    generator = torch.Generator().manual_seed(seed)
    network = Transformer(make_config(store.folder).student.shape(store.manifest.vocabulary), generator)
    assert network.output is not None
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator))
        network.decoder_norm.weight.mul_(2)
        network.decoder_norm.bias[0] = 1.0
        network.output.weight[:, 0] = 0.0
        network.output.weight[2, 0] = 2.0
    return network


def save_network(run: Path, step: int, network: Transformer) -> None:
    Checkpoints(run / "checkpoints").save(step, {"student": Saved({"network": dict(network.state_dict())})})


def damage(run: Path, step: int) -> None:
    path = run / "checkpoints" / str(step) / "student.network.safetensors"
    path.write_bytes(path.read_bytes()[:-4] + b"ruin")


def selection_references(store: Store, arm: str) -> list[str]:
    """The English of the dev sentences that choose checkpoints, with the default half for the teacher."""
    pairs = store.text("dev", arm)
    return [pairs[index][1] for index in selection_part(store.split("dev"), arm, 0.5, "text")]


def write_translations(
    run: Path, store: Store, right: dict[tuple[int, ...], tuple[str, ...]], config: EvaluationConfig
) -> None:
    """Dev translations for each window, as if made before: perfect for the languages named, nonsense for others."""
    for steps, languages in right.items():
        for arm in store.languages:
            path = translation_path(Run(run), Model(steps, config.combine), SELECTION_PART, arm, config.selecting)
            path.parent.mkdir(exist_ok=True)
            references = selection_references(store, arm)
            lines = references if arm in languages else ["zzz"] * len(references)
            path.write_text("".join(f"{line}\n" for line in lines))


def write_validations(run: Path, losses: dict[int, dict[str, float]]) -> None:
    record = Record(run / "validations.jsonl")
    for step, by_language in losses.items():
        record.write({"step": step, "dev_loss": by_language})
    record.close()


def windows_of(*lasts: int) -> list[tuple[int, ...]]:
    """Windows of four checkpoints by their last steps: 40 is (10, 20, 30, 40)."""
    return [(last - 30, last - 20, last - 10, last) for last in lasts]
