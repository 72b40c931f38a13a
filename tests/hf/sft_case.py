"""A tiny random Llama and TRL's trainer, for the tests of ``rota.hf``."""

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from rota.hf import Lessons, taught

WORDS = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(60))]


def tokenizer():
    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def text(first, count, seed):
    rng = np.random.default_rng(seed)
    lines = [rng.integers(first, first + 20, int(rng.integers(4, 12))) for _ in range(count)]
    return Dataset.from_list([{"text": " ".join(f"w{number}" for number in line)} for line in lines])


def make_sft(out, teacher, callbacks=()):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    more = {"num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0, "eos_token_id": 1}
    lessons = Lessons({"az": text(0, 30, 1), "tr": text(30, 100, 2)}, teacher)
    often = {"eval_strategy": "steps", "eval_steps": 8, "save_steps": 6, "logging_steps": 50}
    quiet = {"report_to": [], "use_cpu": True, "bf16": False, "disable_tqdm": True, "gradient_checkpointing": False}
    args = SFTConfig(str(out), max_steps=16, per_device_train_batch_size=4, learning_rate=3e-3, **often, **quiet)
    trainer = taught(SFTTrainer)(
        model=LlamaForCausalLM(LlamaConfig(vocab_size=len(WORDS), **sizes, **more)),
        args=args,
        train_dataset=lessons.dataset,
        eval_dataset={"az": text(0, 10, 3), "tr": text(30, 10, 4)},
        processing_class=tokenizer(),
        callbacks=list(callbacks),
        lessons=lessons,
    )
    return lessons, trainer
