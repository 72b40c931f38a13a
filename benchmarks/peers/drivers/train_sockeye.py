"""Sockeye: its own data preparation (once) and its own trainer; targets counted as its loss sees them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from counting import Counter, settings


def main() -> None:
    wanted = settings()
    text, scratch = Path(wanted.text), Path(wanted.scratch)
    prepared = scratch / f"prepared-scaled-{text.name}"
    if not (prepared / "data.info").exists():
        prepare(text, prepared)

    from sockeye import constants, train, training

    counter = Counter(wanted)
    step = training.EarlyStoppingTrainer._step

    def counted(self, batch):
        counter.saw(batch.labels[constants.TARGET_LABEL_NAME], constants.PAD_ID)
        return step(self, batch)

    training.EarlyStoppingTrainer._step = counted
    sys.argv = ["sockeye-train", *options(wanted, text, prepared, scratch / f"model-{wanted.seed}")]
    train.main()


def prepare(text: Path, prepared: Path) -> None:
    files = ["--source", str(text / "train.src"), "--target", str(text / "train.tgt"), "--output", str(prepared)]
    command = [sys.executable, "-m", "sockeye.prepare_data", *files, "--shared-vocab", "--max-seq-len", "202"]
    command += ["--bucket-scaling"]  # targets are shorter than sources: buckets in that proportion hold less padding
    subprocess.run(command, check=True)


def options(wanted, text: Path, prepared: Path, output: Path) -> list[str]:
    dropout = (
        "embed-dropout",
        "transformer-dropout-attention",
        "transformer-dropout-act",
        "transformer-dropout-prepost",
    )
    given = {
        "prepared-data": prepared,
        "validation-source": text / "dev.src",
        "validation-target": text / "dev.tgt",
        "output": output,
        "encoder": "transformer",
        "decoder": "transformer",
        "num-layers": wanted.layers,
        "transformer-model-size": wanted.width,
        "transformer-attention-heads": wanted.heads,
        "transformer-feed-forward-num-hidden": wanted.feedforward,
        "weight-tying-type": "src_trg_softmax",
        "label-smoothing": wanted.label_smoothing,
        **dict.fromkeys(dropout, wanted.dropout),
        "batch-type": "word",
        "batch-size": wanted.tokens,
        "max-seq-len": 202,
        "optimizer": "adam",
        "optimizer-betas": "0.9:0.998",
        "initial-learning-rate": 0.0001,
        "gradient-clipping-type": "norm",
        "gradient-clipping-threshold": 5.0,
        "max-updates": wanted.updates,
        "checkpoint-interval": 1_000_000,
        "seed": wanted.seed,
    }
    flags = ["--use-cpu", "--overwrite-output", "--quiet", "--bucket-scaling"]
    return flags + [part for name, value in given.items() for part in (f"--{name}", str(value))]


if __name__ == "__main__":
    main()
