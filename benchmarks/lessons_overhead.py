"""What ``rota.hf`` adds to a step of a small model, in processor time: python benchmarks/lessons_overhead.py

A plain trainer and a taught one train the same tiny transformer in turns. The difference of two such times is mostly
noise, so the time inside the sampler and the callback is also measured directly.
"""

from __future__ import annotations

import sys
import tempfile
import time
from statistics import median

import numpy as np
import torch
from datasets import Dataset
from transformers import M2M100Config, M2M100ForConditionalGeneration, Seq2SeqTrainer, Seq2SeqTrainingArguments

from rota.hf import Lessons, taught
from rota.hf.sampler import LessonSampler

LANGUAGES = {"az": 2_000, "be": 2_000, "tr": 20_000, "ru": 20_000}
LENGTH = 24


def language(count, seed, vocabulary):
    tokens = np.random.default_rng(seed).integers(10, vocabulary, (count, LENGTH)).tolist()
    return Dataset.from_dict({"input_ids": tokens, "labels": tokens})


def collate(rows):
    return {name: torch.tensor([row[name] for row in rows]) for name in ("input_ids", "labels")}


def small(width, vocabulary):
    sizes = {"encoder_layers": 3, "decoder_layers": 3, "encoder_ffn_dim": 4 * width, "decoder_ffn_dim": 4 * width}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = M2M100Config(vocab_size=vocabulary, d_model=width, max_position_embeddings=64, **sizes, **heads)
    return M2M100ForConditionalGeneration(config)


class Clock:
    """Processor seconds inside some functions, each replaced by one that counts."""

    def __init__(self):
        self.seconds = 0.0

    def counted(self, function):
        def timed(*args, **settings):
            start = time.process_time()
            try:
                return function(*args, **settings)
            finally:
                self.seconds += time.process_time() - start

        return timed


def run(lessons, updates, width, vocabulary, clock=None):
    """Processor seconds of so many updates; with ``clock``, the trainer takes lessons."""
    with tempfile.TemporaryDirectory() as folder:
        quiet = {
            "report_to": [],
            "use_cpu": True,
            "disable_tqdm": True,
            "save_strategy": "no",
            "logging_strategy": "no",
        }
        args = Seq2SeqTrainingArguments(folder, max_steps=updates, per_device_train_batch_size=32, **quiet)
        kind, more = (Seq2SeqTrainer, {}) if clock is None else (taught(Seq2SeqTrainer), {"lessons": lessons})
        torch.manual_seed(1)
        trainer = kind(
            model=small(width, vocabulary),
            args=args,
            train_dataset=lessons.dataset,
            data_collator=collate,
            **more,
        )
        if clock is not None:
            for name in ("trained", "played"):
                setattr(lessons, name, clock.counted(getattr(lessons, name)))
        start = time.process_time()
        trainer.train()
        return time.process_time() - start


def main(updates=60, turns=5, width=256, vocabulary=8_000):
    torch.set_num_threads(1)
    data = {name: language(size, seed, vocabulary) for seed, (name, size) in enumerate(LANGUAGES.items())}
    clock, drawn = Clock(), LessonSampler._next_update
    LessonSampler._next_update = clock.counted(drawn)
    plain, ours = [], []
    try:
        for _ in range(turns):
            plain.append(run(Lessons(data), updates, width, vocabulary) / updates)
            ours.append(run(Lessons(data, "temperature"), updates, width, vocabulary, clock) / updates)
    finally:
        LessonSampler._next_update = drawn
    inside = clock.seconds / (turns * updates)
    step = median(plain)
    print(f"a step of the plain trainer: {1000 * step:.1f} ms (median of {turns} runs of {updates} updates, in turns)")
    print(f"with lessons: {1000 * median(ours):.1f} ms, {median(ours) / step - 1:+.1%}")
    print(f"inside the sampler and the callback: {1000 * inside:.3f} ms, {inside / step:.3%}")
    return inside / step


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
