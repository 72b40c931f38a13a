"""OpenNMT-py: its own trainer from a YAML file, as its documentation shows; targets counted in its batches."""

from __future__ import annotations

import json
from pathlib import Path

from counting import Counter, settings


def main() -> None:
    wanted = settings()

    from onmt import trainer
    from onmt.bin.train import train
    from onmt.opts import train_opts
    from onmt.utils.parse import ArgumentParser

    counter = Counter(wanted)
    accumulate = trainer.Trainer._gradient_accumulation

    def counted(self, batches, *others):
        for batch in batches:
            counter.saw(batch["tgt"][:, 1:, 0], self.train_loss.padding_idx)
        return accumulate(self, batches, *others)

    trainer.Trainer._gradient_accumulation = counted
    parser = ArgumentParser()
    train_opts(parser)
    config = Path(wanted.scratch) / f"config-{wanted.seed}.yaml"
    config.write_text(json.dumps(options(wanted)), encoding="utf-8")  # JSON is YAML
    opt, _ = parser.parse_known_args(["-config", str(config)])
    train(opt)


def options(wanted) -> dict[str, object]:
    text = Path(wanted.text)
    return {
        "data": {"all": {"path_src": str(text / "train.src"), "path_tgt": str(text / "train.tgt")}},
        "src_vocab": str(text / "vocabulary.txt"),
        "share_vocab": True,
        "save_model": str(Path(wanted.scratch) / "model"),
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "layers": wanted.layers,
        "hidden_size": wanted.width,
        "word_vec_size": wanted.width,
        "heads": wanted.heads,
        "transformer_ff": wanted.feedforward,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "position_encoding": True,
        "dropout": [wanted.dropout],
        "attention_dropout": [wanted.dropout],
        "label_smoothing": wanted.label_smoothing,
        "batch_type": "tokens",
        "batch_size": wanted.tokens,
        "normalization": "tokens",
        "accum_count": [1],
        "bucket_size": min(262_144, wanted.pairs),  # not more than there are: it would fill it with repetitions
        "num_workers": 0,
        "optim": "adam",
        "adam_beta2": 0.998,
        "decay_method": "noam",
        "learning_rate": 2.0,
        "warmup_steps": 8_000,
        "max_grad_norm": 5.0,
        "param_init": 0.0,
        "param_init_glorot": True,
        "model_dtype": "fp32",
        "world_size": 1,
        "train_steps": wanted.updates + 1,
        "save_checkpoint_steps": 1_000_000,
        "valid_steps": 1_000_000,
        "seed": wanted.seed,
    }


if __name__ == "__main__":
    main()
