"""Hugging Face's Seq2SeqTrainer on M2M100, the model that is ours weight for weight; labels counted in its batches.

Its batches have a number of sentences, so it is given as many as hold the budget on average; `group_by_length` sorts.
"""

from __future__ import annotations

import random
from pathlib import Path

import torch
from counting import Counter, settings
from transformers import M2M100Config, M2M100ForConditionalGeneration, Seq2SeqTrainer, Seq2SeqTrainingArguments
from transformers.models.m2m_100.modeling_m2m_100 import shift_tokens_right

PAD, END, IGNORED = 1, 2, -100


def main() -> None:
    wanted = settings()
    counter = Counter(wanted)
    pairs = read_pairs(Path(wanted.text))
    mean = sum(len(pair["labels"]) for pair in pairs) / len(pairs)

    class Counted(Seq2SeqTrainer):
        def training_step(self, model, inputs, *others):
            counter.saw(inputs["labels"], IGNORED)
            return super().training_step(model, inputs, *others)

        def _get_train_sampler(self, *others):
            """Its batches in random order: by itself it begins with the longest, and a short look sees no others."""
            indices, size = list(super()._get_train_sampler(*others)), self.args.train_batch_size
            batches = [indices[start : start + size] for start in range(0, len(indices) - size + 1, size)]
            random.Random(wanted.seed).shuffle(batches)
            return [index for batch in batches for index in batch]

    arguments = Seq2SeqTrainingArguments(
        output_dir=str(Path(wanted.scratch) / "model"),
        per_device_train_batch_size=max(1, round(wanted.tokens / mean)),
        group_by_length=True,
        length_column_name="length",
        label_smoothing_factor=wanted.label_smoothing,
        learning_rate=0.0001,
        adam_beta2=0.998,
        max_grad_norm=5.0,
        max_steps=wanted.updates + 1,
        use_cpu=True,
        dataloader_num_workers=0,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        seed=wanted.seed,
    )
    Counted(model=make_model(wanted), args=arguments, train_dataset=pairs, data_collator=collate).train()


def make_model(wanted) -> M2M100ForConditionalGeneration:
    side = {"layers": wanted.layers, "attention_heads": wanted.heads, "ffn_dim": wanted.feedforward}
    sizes = {f"{which}_{name}": value for which in ("encoder", "decoder") for name, value in side.items()}
    dropout = dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), wanted.dropout)
    config = M2M100Config(
        vocab_size=wanted.vocabulary,
        d_model=wanted.width,
        **sizes,
        **dropout,
        encoder_layerdrop=0.0,
        decoder_layerdrop=0.0,
        activation_function="relu",
        scale_embedding=True,
        use_cache=False,
    )
    return M2M100ForConditionalGeneration(config)


def read_pairs(text: Path) -> list[dict[str, object]]:
    sides = []
    for name in ("train.src", "train.tgt"):
        lines = (text / name).read_text(encoding="utf-8").splitlines()
        sides.append([[*(int(word[1:]) for word in line.split()), END] for line in lines])
    return [
        {"input_ids": source, "labels": target, "length": len(source)} for source, target in zip(*sides, strict=True)
    ]


def collate(pairs: list[dict[str, object]]) -> dict[str, torch.Tensor]:
    sources = pad([pair["input_ids"] for pair in pairs], PAD)
    labels = pad([pair["labels"] for pair in pairs], IGNORED)
    shifted = shift_tokens_right(labels, PAD, END)
    return {"input_ids": sources, "attention_mask": sources != PAD, "labels": labels, "decoder_input_ids": shifted}


def pad(rows: list[list[int]], value: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


if __name__ == "__main__":
    main()
