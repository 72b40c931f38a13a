"""fairseq: its own preprocessing (once) and its own command for training; targets counted in its batches."""

from __future__ import annotations

import sys
from pathlib import Path

from counting import Counter, settings


def main() -> None:
    wanted = settings()
    text, data = Path(wanted.text), Path(wanted.scratch) / f"data-{Path(wanted.text).name}"
    if not (data / "train.src-tgt.tgt.bin").exists():
        preprocess(text, data)

    from fairseq import trainer
    from fairseq_cli import train

    counter = Counter(wanted)
    step = trainer.Trainer.train_step

    def counted(self, samples, *others, **named):
        for sample in samples:
            counter.saw(sample["target"], self.task.target_dictionary.pad())
        return step(self, samples, *others, **named)

    trainer.Trainer.train_step = counted
    sys.argv = ["fairseq-train", *options(wanted, data)]
    train.cli_main()


def preprocess(text: Path, data: Path) -> None:
    from fairseq_cli import preprocess

    files = ["--trainpref", str(text / "train"), "--validpref", str(text / "dev"), "--destdir", str(data)]
    sys.argv = ["fairseq-preprocess", "--source-lang", "src", "--target-lang", "tgt", *files]
    sys.argv += ["--srcdict", str(text / "dict.txt"), "--joined-dictionary", "--workers", "1"]
    preprocess.cli_main()


def options(wanted, data: Path) -> list[str]:
    sizes = {"layers": wanted.layers, "embed-dim": wanted.width, "attention-heads": wanted.heads}
    sizes["ffn-embed-dim"] = wanted.feedforward
    given = {
        "task": "translation",
        "source-lang": "src",
        "target-lang": "tgt",
        "arch": "transformer",
        **{f"{side}-{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()},
        "dropout": wanted.dropout,
        "attention-dropout": wanted.dropout,
        "activation-dropout": wanted.dropout,
        "criterion": "label_smoothed_cross_entropy",
        "label-smoothing": wanted.label_smoothing,
        "max-tokens": wanted.tokens,
        "optimizer": "adam",
        "adam-betas": "(0.9, 0.998)",
        "lr": 0.0001,
        "lr-scheduler": "fixed",
        "clip-norm": 5.0,
        "max-update": wanted.updates + 1,
        "num-workers": 0,
        "save-dir": Path(wanted.scratch) / "model",
        "seed": wanted.seed,
    }
    flags = ["--cpu", "--share-all-embeddings", "--encoder-normalize-before", "--decoder-normalize-before"]
    flags += ["--no-save", "--disable-validation", "--no-progress-bar"]
    return [str(data), *flags, *(part for name, value in given.items() for part in (f"--{name}", str(value)))]


if __name__ == "__main__":
    main()
