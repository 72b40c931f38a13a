"""Does a dot product say what stays of an update? And how many dev sentences does the direction need?

    python docs/results/arms/lasting.py messy-debian --json docs/results/arms/runs/lasting/messy-debian.jsonl

From the repository's root. A student is trained with uniform shares (controls.yaml). At each of the steps:

- *gain*: training goes on from there once for every arm: 15 updates on that arm, then 100 that are the same for all.
  The gain is the dev loss at averaged weights that it has less than after 15 updates on all arms in turn.
- *product*: of each arm's training gradient, on 6,000 tokens, with the direction of `align`: the gradient of the dev
  loss in Adam's metric. Both at averaged weights. As far as it is above the mean of the arms, in their deviations.
- *agreement*: the correlation over arms of those products with the products along a direction from fewer dev tokens.

It takes about five minutes of processor time a step.
"""

import argparse
import copy
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rota import api
from rota.config import parse_config
from rota.data.batches import make_stream
from rota.experiments.suite import load_suite
from rota.training.loop import Loop
from rota.types import Batch, Gradient

SUITE = Path(__file__).with_name("controls.yaml")
BURST, AFTERWARDS = 15, 100  # updates
ARM_TOKENS, DEV_TOKENS = 6_000, 3_000  # target tokens, those of the dev sets for each language
FEWER = (56, 112, 225, 450, 900)
SAMPLES = 4  # directions of each size


class Bench:
    """A student in the middle of a run, and what can be tried from there."""

    def __init__(self, loop: Loop, store: Any, seed: int) -> None:
        self.loop, self.store, self.seed = loop, store, seed
        self.student: Any = loop.student
        self.sets, self.arms = loop.probe.sets, store.arms

    def look(self) -> dict[str, Any]:
        along = {arm: self.gradient({arm: self.sample("train", arm, ARM_TOKENS)}) for arm in self.arms}

        def products(tokens: int, turn: int) -> np.ndarray:
            dev = {name: self.sample("teacher", name, tokens, turn) for name in self.sets.goal}
            direction = self.gradient(dev).in_adams_metric()
            return np.array([direction.dot(gradient) for gradient in along.values()])

        best = products(DEV_TOKENS, 0)
        agreement = {
            tokens: [float(np.corrcoef(products(tokens, turn), best)[0, 1]) for turn in range(1, SAMPLES + 1)]
            for tokens in FEWER
        }
        standard = (best - best.mean()) / best.std()
        return {
            "step": self.loop.step,
            "product": dict(zip(self.arms, np.round(standard, 3).tolist(), strict=True)),
            "gain": {arm: round(gain, 5) for arm, gain in self.gains().items()},
            "agreement": {tokens: np.round(found, 3).tolist() for tokens, found in agreement.items()},
        }

    def gains(self) -> dict[str, float]:
        before = copy.deepcopy(self.student.state_dict())
        in_turn = [self.arms[number % len(self.arms)] for number in range(BURST)]
        losses = {arm: self.loss_after(before, [arm] * BURST) for arm in self.arms}
        usual = self.loss_after(before, in_turn)
        self.student.load_state_dict(before)
        return {arm: usual - loss for arm, loss in losses.items()}

    def loss_after(self, before: dict[str, Any], burst: list[str]) -> float:
        """Dev loss, mean of the languages, after these updates and those that are the same for all."""
        self.student.load_state_dict(copy.deepcopy(before))
        rng = np.random.default_rng(self.seed)
        rounds = [rng.permutation(len(self.arms)) for _ in range(-(-AFTERWARDS // len(self.arms)))]
        afterwards = [self.arms[index] for index in np.concatenate(rounds)[:AFTERWARDS]]
        for phase, played in enumerate((burst, afterwards)):
            streams = {arm: self.stream(arm, phase) for arm in self.arms}
            for arm in played:
                self.student.update([next(streams[arm])])
        batches = {name: self.sample("teacher", name, DEV_TOKENS) for name in self.sets.goal}
        return float(np.mean([self.student.losses([each], weights="average").per_token for each in batches.values()]))

    def stream(self, arm: str, phase: int) -> Any:
        return make_stream(self.store, arm, 750, self.seed + phase, ranks=self.sets.ranks)

    def sample(self, part: Any, name: str, tokens: int, turn: int = 0) -> Batch:
        return self.sets.sample(part, name, tokens, turn).batch()

    def gradient(self, batches: dict[str, Batch]) -> Gradient:
        """Of the mean of their losses, at averaged weights."""
        total = sum(batch.tokens for batch in batches.values())
        alike = [
            replace(each, weights=np.full(each.sentences, total / len(batches) / each.tokens))
            for each in batches.values()
        ]
        found: Gradient = self.student.gradient(alike, weights="average")
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", help="messy-debian or messy-ted8-small")
    parser.add_argument("--seed", type=int, default=2001)
    parser.add_argument("--steps", type=int, nargs="+", default=[300, 600])
    parser.add_argument("--json", type=Path, help="keep what was found here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        values = load_suite(SUITE).on(arguments.corpus).values("uniform", arguments.seed, Path(folder))
        config = parse_config(values)
        store = api.prepare(config)
        loop = api.build_loop(config, store, Path(folder) / "run")
        bench, found = Bench(loop, store, arguments.seed), []
        for step in arguments.steps:
            while loop.step < step:
                loop.advance(step)
            found.append({"corpus": arguments.corpus, "seed": arguments.seed, **bench.look()})
            print(json.dumps(found[-1]), flush=True)
        loop.journal.close()
    if arguments.json is not None:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text("".join(f"{json.dumps(each)}\n" for each in found), encoding="utf-8")


if __name__ == "__main__":
    main()
