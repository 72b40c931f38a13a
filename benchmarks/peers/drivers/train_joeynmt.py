"""JoeyNMT: its own trainer from its own config; targets counted in its batches."""

from __future__ import annotations

from pathlib import Path

from counting import Counter, settings


def main() -> None:
    wanted = settings()

    from joeynmt import training

    counter = Counter(wanted)
    step = training.TrainManager._train_step

    def counted(self, batch):
        counter.count(int(batch.ntokens), batch.trg.numel())
        return step(self, batch)

    training.TrainManager._train_step = counted
    config = options(wanted)
    Path(config["model_dir"]).mkdir(parents=True, exist_ok=True)
    training.train(0, 1, config, skip_test=True)


def options(wanted) -> dict[str, object]:
    text, scratch = Path(wanted.text), Path(wanted.scratch)
    special = ["<unk>", "<pad>", "<s>", "</s>"]
    vocabulary = scratch / f"vocabulary-{wanted.vocabulary}.txt"
    words = (text / "vocabulary.txt").read_text(encoding="utf-8").split()
    vocabulary.write_text("\n".join([*special, *words]) + "\n", encoding="utf-8")
    side = {"level": "word", "lowercase": False, "max_length": 202, "voc_file": str(vocabulary)}
    layer = {
        "type": "transformer",
        "num_layers": wanted.layers,
        "num_heads": wanted.heads,
        "hidden_size": wanted.width,
        "ff_size": wanted.feedforward,
        "dropout": wanted.dropout,
        "layer_norm": "pre",
        "embeddings": {"embedding_dim": wanted.width, "scale": True, "dropout": wanted.dropout},
    }
    return {
        "name": "bench",
        "model_dir": str(scratch / "model"),
        "use_cuda": False,
        "random_seed": wanted.seed,
        "data": {
            "train": str(text / "train"),
            "dev": str(text / "dev"),
            "dataset_type": "plain",
            "src": {"lang": "src", **side},
            "trg": {"lang": "tgt", **side},
        },
        "testing": {"batch_size": 64},
        "training": {
            "batch_type": "token",
            "batch_size": wanted.tokens,
            "normalization": "tokens",
            "label_smoothing": wanted.label_smoothing,
            "optimizer": "adam",
            "adam_betas": [0.9, 0.998],
            "scheduling": "warmupinversesquareroot",
            "learning_rate": 0.0001,
            "learning_rate_warmup": 8_000,
            "clip_grad_norm": 5.0,
            "epochs": 100,
            "updates": wanted.updates + 1,
            "logging_freq": 1_000_000,
            "validation_freq": 1_000_000,
        },
        "model": {
            "initializer": "xavier_uniform",
            "embed_initializer": "xavier_uniform",
            "bias_initializer": "zeros",
            "tied_embeddings": True,
            "tied_softmax": True,
            "encoder": layer,
            "decoder": layer,
        },
    }


if __name__ == "__main__":
    main()
