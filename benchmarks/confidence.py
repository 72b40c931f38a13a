"""Why dev loss and translations can disagree: how often models are right, and how sure they are when they are wrong.

    python benchmarks/confidence.py runs/laptop/uniform-warmup runs/laptop/dqn ... [--sentences 150]

Each argument is a row of a suite: a folder with runs seed-1, seed-2, ... Their last checkpoints are given the same
sentences of every language, training and dev, with the reference before each target token (teacher forcing). Means
± standard deviation over seeds: the share of tokens for which the right one is the likeliest, and the loss of these and
of the others.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import torch

from rota.data.store import Store
from rota.evaluation.translator import Loader
from rota.runs import Run
from rota.student.kernels.attention import Layout
from rota.student.transformer import Transformer, logits
from rota.types import Batch, FloatArray

BATCH = 30
HEAD = ("row", "seeds", "languages", "split", "right", "loss if right", "if wrong", "loss")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, nargs="+")
    parser.add_argument("--sentences", type=int, default=150, help="of each language and split, at most")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print("| " + " | ".join(HEAD) + " |\n" + "|---" * len(HEAD) + "|")
    for row in arguments.rows:
        runs = sorted(row.glob("seed-*"))
        measured = [measure(run, arguments.sentences) for run in runs]
        for group, split in measured[0]:
            found = np.array([run[group, split] for run in measured])
            spread = found.std(axis=0, ddof=1) if len(runs) > 1 else np.full(4, np.nan)
            figures = [f"{mean:.3f} ± {sd:.3f}" for mean, sd in zip(found.mean(axis=0), spread, strict=True)]
            print(f"| {row.name} | {len(runs)} | {group} | {split} | {' | '.join(figures)} |", flush=True)
    return 0


def measure(run: Path, sentences: int) -> dict[tuple[str, str], FloatArray]:
    """By group of languages and split: share of right tokens, loss of these, of the others, of all."""
    store = Store.open(Path(Run(run).setting("data.folder")))
    loader = Loader(run, "cpu")
    network = loader.network(loader.run.checkpoint().step)
    groups = {"low-resource": store.low_resource, "high-resource": store.high_resource}
    return {
        (group, split): summary(torch.cat([tokens(network, store, split, name, sentences) for name in languages]))
        for group, languages in groups.items()
        for split in ("train", "dev")
    }


@torch.inference_mode()
def tokens(network: Transformer, store: Store, split: str, language: str, sentences: int) -> torch.Tensor:
    """The loss of each target token of a sample, and whether it was the likeliest."""
    pairs = store.split(split)
    first, last = pairs.range(language)
    chosen = np.random.default_rng(0).permutation(np.arange(first, last))[:sentences]
    batches = (pairs.batch(language, chosen[at : at + BATCH]) for at in range(0, len(chosen), BATCH))
    return torch.cat([judge(network, batch) for batch in batches])


def judge(network: Transformer, batch: Batch) -> torch.Tensor:
    source, target = (torch.from_numpy(side.astype(np.int64)) for side in (batch.source, batch.target))
    layouts = [
        Layout(each, network.shape.heads, network.device) for each in (batch.source_lengths, batch.target_lengths)
    ]
    states = network(source, layouts[0], target, layouts[1], None)
    log_probabilities = logits(network, states).log_softmax(-1)
    loss = -log_probabilities.gather(1, target[:, None])[:, 0]
    return torch.stack([loss, (log_probabilities.argmax(-1) == target).float()], dim=1)


def summary(judged: torch.Tensor) -> FloatArray:
    loss, right = judged[:, 0], judged[:, 1] > 0
    return np.array(
        [float(each) for each in (judged[:, 1].mean(), loss[right].mean(), loss[~right].mean(), loss.mean())]
    )


if __name__ == "__main__":
    sys.exit(main())
