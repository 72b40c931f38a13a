"""A tiny random model of NLLB's kind, four made-up languages, and a teacher inside Hugging Face's trainer.

The lines of one of the large corpora are not aligned, as happens with text from the web: the teacher notices.

python docs/use_lessons.py FOLDER [STEPS]
"""

import sys
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import M2M100Config, M2M100ForConditionalGeneration, Seq2SeqTrainer, Seq2SeqTrainingArguments

from rota.hf import Lessons, taught

PAD, END = 1, 2
TRAIN = {"aze_Latn": 300, "tur_Latn": 3_000, "bel_Cyrl": 300, "rus_Cyrl": 3_000}  # sentences
NOT_ALIGNED = "rus_Cyrl"
TAGS = {name: number for number, name in enumerate(TRAIN, start=4)}
WORDS = {"aze_Latn": 30, "tur_Latn": 34, "bel_Cyrl": 80, "rus_Cyrl": 84}  # relatives share most of their words


def language(name, count, seed):
    """A sentence is a few words, and its translation the same words of the target language."""
    rng, rows = np.random.default_rng([seed, WORDS[name]]), []
    for _ in range(count):
        words = rng.integers(0, 20, rng.integers(2, 6))
        source = [TAGS[name], *(WORDS[name] + words).tolist(), END]  # as NLLB has it: the language, then the words
        rows.append({"input_ids": source, "labels": [*(10 + words).tolist(), END]})
    return rows


def mixed_up(rows):
    """Every line with the translation of the one after it."""
    return [{**row, "labels": other["labels"]} for row, other in zip(rows, [*rows[1:], rows[0]], strict=True)]


def collate(rows):
    def padded(name, value):
        longest = max(len(row[name]) for row in rows)
        return torch.tensor([row[name] + [value] * (longest - len(row[name])) for row in rows])

    sources = padded("input_ids", PAD)
    return {"input_ids": sources, "attention_mask": (sources != PAD).long(), "labels": padded("labels", -100)}


def main(folder, steps):
    torch.manual_seed(1)
    sizes = {"d_model": 64, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128, "max_position_embeddings": 32}
    depth = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    plain = {"dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.08}
    special = {"pad_token_id": PAD, "eos_token_id": END, "decoder_start_token_id": END}
    model = M2M100ForConditionalGeneration(M2M100Config(vocab_size=128, **sizes, **depth, **plain, **special))

    rows = {name: language(name, count, 1) for name, count in TRAIN.items()}
    rows[NOT_ALIGNED] = mixed_up(rows[NOT_ALIGNED])
    lessons = Lessons(
        {name: Dataset.from_list(some) for name, some in rows.items()},
        {"name": "align", "start": "5%", "refresh": 20, "gate_tokens": 400},
    )
    args = Seq2SeqTrainingArguments(
        str(folder / "run"),
        max_steps=steps,
        per_device_train_batch_size=32,
        learning_rate=2e-3,
        lr_scheduler_type="constant_with_warmup",
        warmup_steps=steps // 20,
        eval_strategy="steps",
        eval_steps=max(1, steps // 20),
        save_steps=max(1, steps // 2),
        report_to=[],
        use_cpu=True,
    )
    trainer = taught(Seq2SeqTrainer)(
        model=model,
        args=args,
        train_dataset=lessons.dataset,
        eval_dataset={name: Dataset.from_list(language(name, 64, 2)) for name in TRAIN},
        data_collator=collate,
        lessons=lessons,
    )
    trainer.train(resume_from_checkpoint=any((folder / "run").glob("checkpoint-*")))
    print(f"wrote {lessons.report(folder / 'report')}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 800)
