"""A small project for the other modules: a config, a suite, and the commands that make data, runs and scores of it."""

from __future__ import annotations

import shutil
from pathlib import Path

CONFIG = """
seed: 3
data:
  corpus: synthetic
  folder: data
  low_resource: [lato]
  subwords: {size: 300}
  synthetic: {families: {la: {lala: 200, lato: 40}}, dev: 16, test: 6}
student: {preset: tiny, layers: 1, width: 16, heads: 2, feedforward: 32, lr_warmup: 4}
teacher: uniform
training: {steps: 16, tokens: 80, checkpoint_every: 4, validate_every: 5, keep: 2, threads: 1, tensorboard: false}
evaluation: {beam: 1}
"""
SUITE = """
base: config.yaml
seeds: 2
rows:
  uniform: {teacher: uniform}
  temperature: {teacher: {name: temperature, temperature: 5}, label: T = 5}
  copied: {teacher: {name: replay-proportions, run: "{runs}/uniform/seed-{seed}"}}
"""
PLANNED_SUITE = """
base: config.yaml
seeds: [1, 2]
branch: true
over: {training: {steps: 12}}
rows:
  uniform: {teacher: {name: uniform, warmup: 4}}
  five: {teacher: {name: temperature, temperature: 5, warmup: 4}, label: five, table: main}
plan:
  endpoint: late-dev-loss
  interest: 0.03
  contrasts:
    five-against-uniform: {row: five, minus: uniform}
"""
TEACHERS = {
    "uniform": "uniform",
    "tscl": "{name: tscl, warmup: 4, reward_tokens: 40}",
    "dqn": "{name: dqn, warmup: 4, epsilon_steps: 6, decide_every: 2, replay_minimum: 2, replay_batch: 2, "
    "hidden: [8], groups: 2, group_sentences: 2, reward_tokens: 40}",
    "align": "{name: align, warmup: 4}",
}

Command = tuple[str, ...]


def train(teacher: str, run: str = "run") -> Command:
    return ("train", "config.yaml", "--run", run, "--set", f"teacher={TEACHERS[teacher]}")


PREPARE: Command = ("prepare", "config.yaml", "--processes", "1")
EVALUATE: Command = ("evaluate", "run", "--select", "macro", "--metrics", "bleu,chrf,loss")
COMPARE: Command = ("compare", "suite.yaml", "--rows", "uniform,temperature", "--seeds", "1", "--jobs", "1")


def begin(folder: Path) -> None:
    """The files that a user would have written."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(CONFIG)
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "planned.yaml").write_text(PLANNED_SUITE)
