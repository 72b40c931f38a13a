"""Tiny made-up languages, models and trainers for the tests of ``rota.hf``; also a program for several processes.

A language is a range of token numbers; a translation is the sentence backwards in the numbers of the target.
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    M2M100Config,
    M2M100ForConditionalGeneration,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
)

from rota.hf import Lessons, taught
from rota.runs.records import read_record

ALIGN = {"name": "align", "start": 4, "refresh": 5, "observe_every": 5}
TSCL = {"name": "tscl", "warmup": None}
DQN = {
    **{"name": "dqn", "warmup": None, "decide_every": 4, "groups": 2, "replay_minimum": 2},
    **{"replay_batch": 2, "epsilon_steps": 10, "tau": 0.5},
}
SETTINGS = {
    **{"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2},
    **{"eval_strategy": "steps", "eval_steps": 4, "save_steps": 6},
}
FIRST = {"az": 30, "tr": 60, "be": 90, "ru": 120}


def language(first, count, seed):
    rng, rows = np.random.default_rng(seed), []
    for _ in range(count):
        source = rng.integers(first, first + 20, int(rng.integers(3, 8)))
        target = [*(source[::-1] - first + 10).tolist(), 2]
        rows.append({"input_ids": [*source.tolist(), 2], "attention_mask": [1] * len(target), "labels": target})
    return Dataset.from_list(rows)


def collate(rows):
    def padded(name, value):
        longest = max(len(row[name]) for row in rows)
        return torch.tensor([[*row[name], *[value] * (longest - len(row[name]))] for row in rows])

    return {
        "input_ids": padded("input_ids", 1),
        "attention_mask": padded("attention_mask", 0),
        "labels": padded("labels", -100),
    }


def model():
    torch.manual_seed(0)
    sizes = {f"{side}_{what}": 2 for side in ("encoder", "decoder") for what in ("attention_heads",)}
    layers = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32}
    tokens = {"pad_token_id": 1, "decoder_start_token_id": 2}
    return M2M100ForConditionalGeneration(
        M2M100Config(vocab_size=150, d_model=16, max_position_embeddings=16, dropout=0.1, **sizes, **layers, **tokens)
    )


def make(out, teacher, *, sizes=None, steps=16, collator=collate, callbacks=(), dev=None, **settings):
    sizes = sizes or {"az": 20, "tr": 100}
    lessons = Lessons(
        {name: language(FIRST[name], count, 1) for name, count in sizes.items()}, teacher, seed=1, dev=dev
    )
    args = Seq2SeqTrainingArguments(
        output_dir=str(out),
        learning_rate=3e-3,
        warmup_steps=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
        **{**SETTINGS, "max_steps": steps, **settings},
    )
    trainer = taught(Seq2SeqTrainer)(
        model=model(),
        args=args,
        train_dataset=lessons.dataset,
        eval_dataset={name: language(FIRST[name], 12, 2) for name in sizes},
        data_collator=collator,
        callbacks=list(callbacks),
        lessons=lessons,
    )
    return lessons, trainer


class Killed(TrainerCallback):
    """Ends training after an update, without saving."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **_):
        if state.global_step == self.step:
            raise KeyboardInterrupt


def records(out, name="steps"):
    return list(read_record(Path(out) / "lessons" / f"{name}.jsonl"))


def main(out, teacher, steps, resume):
    """For several processes, as torchrun starts them.

    On CPUs transformers asks torch to load optimisers to "cpu:0", which torch does not know.
    """
    load = torch.load
    torch.load = lambda *args, map_location=None, **more: load(*args, map_location="cpu", **more)
    _, trainer = make(out, json.loads(teacher), steps=int(steps))
    trainer.train(resume_from_checkpoint=True if resume == "resume" else None)
    if trainer.is_world_process_zero():
        weights = {name: value.tolist() for name, value in trainer.model.state_dict().items() if "layer_norm" in name}
        (Path(out) / "weights.json").write_text(json.dumps(weights))


if __name__ == "__main__":
    main(*sys.argv[1:])
