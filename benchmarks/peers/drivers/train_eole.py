"""Eole: its own trainer from its own config; targets counted in its batches."""

from __future__ import annotations

from pathlib import Path

from counting import Counter, settings


def main() -> None:
    wanted = settings()

    from eole import trainer
    from eole.bin.run.train import train
    from eole.config.run import TrainConfig

    counter = Counter(wanted)
    batches_of = trainer.Trainer._accum_batches

    def counted(self, iterator):
        for batches, normalization in batches_of(self, iterator):
            for batch in batches:
                counter.saw(batch["tgt"][:, 1:], self.train_loss.padding_idx)
            yield batches, normalization

    trainer.Trainer._accum_batches = counted
    train(TrainConfig(**options(wanted)))


def options(wanted) -> dict[str, object]:
    text = Path(wanted.text)
    return {
        "data": {"all": {"path_src": str(text / "train.src"), "path_tgt": str(text / "train.tgt"), "transforms": []}},
        "src_vocab": str(text / "vocabulary.txt"),
        "tgt_vocab": str(text / "vocabulary.txt"),
        "share_vocab": True,
        "save_data": str(Path(wanted.scratch) / "data"),
        "overwrite": True,
        "seed": wanted.seed,
        "model": {
            "architecture": "transformer",
            "layers": wanted.layers,
            "hidden_size": wanted.width,
            "heads": wanted.heads,
            "transformer_ff": wanted.feedforward,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {"word_vec_size": wanted.width, "position_encoding_type": "SinusoidalInterleaved"},
        },
        "training": {
            "model_path": str(Path(wanted.scratch) / "model"),
            "compute_dtype": "fp32",
            "dropout": [wanted.dropout],
            "attention_dropout": [wanted.dropout],
            "label_smoothing": wanted.label_smoothing,
            "batch_type": "tokens",
            "batch_size": wanted.tokens,
            "batch_size_multiple": 1,
            "normalization": "tokens",
            "accum_count": [1],
            "bucket_size": min(262_144, wanted.pairs),  # as in train_opennmt.py
            "num_workers": 0,
            "prefetch_factor": 1,
            "optim": "adam",
            "adam_beta2": 0.998,
            "decay_method": "noam",
            "learning_rate": 2.0,
            "warmup_steps": 8_000,
            "max_grad_norm": 5.0,
            "world_size": 1,
            "gpu_ranks": [],
            "train_steps": wanted.updates + 1,
            "save_checkpoint_steps": 1_000_000,
            "valid_steps": 1_000_000,
        },
    }


if __name__ == "__main__":
    main()
