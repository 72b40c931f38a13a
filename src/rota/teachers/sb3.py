"""A policy that stable-baselines3 has learned in an environment of Rota (``rota.simulation``), as a teacher.

Of the file only plain JSON and tensors are read: nothing in it is unpickled, so that a model of somebody else's cannot
run code. An :class:`Outlook` is what such a policy sees, and what its actions mean, here and in the environments.
"""

from __future__ import annotations

import io
import json
import math
import pickle
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from pydantic import Field

from rota.files import sha256_of
from rota.measures import DevLoss, Measure
from rota.settings import ConfigError, Count
from rota.teachers.base import Classroom, TeacherConfig
from rota.teachers.card import Card
from rota.teachers.choice import boltzmann, epsilon_greedy, named, random_choice
from rota.teachers.rewards import StepGain, measured
from rota.types import Arm, Decision, FloatArray, Mixture, Observation, State

Actions = Literal["arm", "mixture"]
"""A policy chooses one arm, or the shares of all."""

HIGHEST_LOSS: Final = 20.0
"""Nats per token, up to which losses are shown: worse than guessing from any vocabulary."""

SHARPNESS: Final = 3.0
"""Shares are proportional to exp(3 a) for actions a from -1 to 1: that of one arm can be 400 times that of another."""

MIXTURE: Final = "mixture"
"""The name under which such updates are recorded."""

LARGEST: Final = 256_000_000
"""Bytes of a part of a model's file."""

TRAIN_AGAIN: Final = "train it in an environment of rota.simulation with as many languages"


class Outlook:
    """What a policy sees: every arm's dev loss (nats per token) and share of the tokens so far, and the time gone.

    All are numbers from 0 up; with K arms there are 2 K + 1.
    """

    def __init__(self, classroom: Classroom, tokens: int = 500) -> None:
        self.arms, self.steps = classroom.arms, classroom.steps
        self.goal, self.language_of = classroom.goal, classroom.language_of
        self.measure = DevLoss(arms="all", tokens=tokens)
        self.size = 2 * len(self.arms) + 1
        self.highest = np.array([HIGHEST_LOSS] * len(self.arms) + [1.0] * (len(self.arms) + 1), dtype=np.float32)

    def losses(self, observation: Observation) -> dict[Arm, float]:
        """The dev loss of every arm; refuses an observation without one of them."""
        found = measured(observation, self.measure)
        for arm in self.arms:
            if not math.isfinite(found.get(arm, math.nan)):
                where = f"step {observation.step}: the dev loss of {arm} is {found.get(arm)}"
                raise ValueError(f"{where}; measure all arms, or lower the learning rate if the student diverged")
        return {arm: float(found[arm]) for arm in self.arms}

    def seen(self, observation: Observation) -> FloatArray:
        losses = np.array(list(self.losses(observation).values()))
        tokens = np.array([float(observation.seen.get(arm, 0)) for arm in self.arms])
        shares = tokens / max(1.0, tokens.sum())
        whole = np.concatenate([losses, shares, [observation.step / self.steps]])
        seen: FloatArray = np.clip(whole, 0.0, self.highest).astype(np.float32)
        return seen

    def goal_loss(self, losses: Mapping[Arm, float]) -> float:
        """The mean over the languages that have an arm, as the goal weighs them."""
        by_language = {self.language_of[arm]: losses[arm] for arm in reversed(self.arms)}
        weights = {language: weight for language, weight in self.goal.items() if language in by_language}
        total = math.fsum(weight * by_language[language] for language, weight in weights.items())
        return total / math.fsum(weights.values())

    def shares(self, action: FloatArray) -> dict[Arm, float]:
        """Of the arms in a mixture, from an action with an entry from -1 to 1 for each; they sum to 1."""
        weights = np.exp(SHARPNESS * np.clip(np.asarray(action, dtype=float), -1.0, 1.0))
        return named(self.arms, weights / weights.sum())


class SB3Config(TeacherConfig):
    """A policy learned with stable-baselines3 (PPO, A2C or DQN) in an environment of Rota; it no longer learns."""

    card = Card(
        family="policies",
        line="a policy that you trained",
        observes="dev losses",
        cost=("~15%", "~2%"),
        source="Raffin '21",
        reference="Raffin et al. 2021, Stable-Baselines3: Reliable Reinforcement Learning Implementations",
    )
    name: Literal["sb3"] = "sb3"
    decide_every: int = Field(10, ge=1, description="updates between two choices; as in the environment")
    model: Path = Field(description="the file that the method save of the model wrote", examples=["model: ppo.zip"])
    arms: tuple[Arm, ...] | None = Field(
        None, description="which languages its inputs and outputs stand for, in order; null: those of the corpus"
    )
    deterministic: bool = Field(False, description="true: always the likeliest action of a policy that draws (PPO)")
    tokens: Count = Field(500, ge=1, description="dev tokens of each language in an observation")

    def build(self, classroom: Classroom, rng: np.random.Generator) -> SB3:
        return SB3(self, classroom, rng)

    def check(self, steps: int) -> None:
        super().check(steps)
        if not self.model.is_file():
            remedy = "train a policy first, as docs/gym.md shows, and give the file that its method save wrote"
            raise ConfigError(f"teacher.model is {str(self.model)!r}, which is not a file; {remedy}")


class SB3:
    """Asks a policy that no longer learns. Before it has seen anything, it chooses at random."""

    def __init__(self, config: SB3Config, classroom: Classroom, rng: np.random.Generator) -> None:
        self.config, self._rng = config, rng
        config.check(classroom.steps)
        self.policy, self._fingerprint = read_policy(config.model), sha256_of(config.model)[:16]
        self.outlook = Outlook(_ordered(classroom, config.arms), config.tokens)
        self.policy.check(config.model, self.outlook)
        self._reward = StepGain()
        self._seen: FloatArray | None = None

    @property
    def watches(self) -> Sequence[Measure]:
        return (self.outlook.measure,)

    def ask(self, step: int) -> Decision:  # noqa: ARG002 - it sees the time that is gone
        arms = self.outlook.arms
        if self._seen is None:
            return random_choice(arms, self._rng)
        outputs = self.policy.outputs(self._seen)
        if self.policy.spread is not None:
            noise = 0.0 if self.config.deterministic else self.policy.spread * self._rng.standard_normal(len(arms))
            shares = self.outlook.shares(outputs + noise)
            return Decision(MIXTURE, "policy", scores=shares, mixture=Mixture(shares, "batch"))
        if self.policy.greedy or self.config.deterministic:
            return epsilon_greedy(arms, outputs, outputs, self._rng, epsilon=0.0)
        return boltzmann(arms, outputs, outputs, self._rng, temperature=1.0)

    def tell(self, observation: Observation) -> Mapping[Arm, float]:
        """The reward, which it does not learn from: how far the goal's dev loss fell; of a mixture, no arm's own."""
        self._seen = self.outlook.seen(observation)
        arm = observation.decision.arm
        gain = self._reward(arm, self.outlook.goal_loss(self.outlook.losses(observation)))
        return {} if gain is None or arm not in self.outlook.arms else {arm: gain}

    def state_dict(self) -> State:
        seen = None if self._seen is None else self._seen.copy()
        rng = self._rng.bit_generator.state
        return {"rng": rng, "seen": seen, "reward": self._reward.state_dict(), "model": self._fingerprint}

    def load_state_dict(self, state: State) -> None:
        if state["model"] != self._fingerprint:
            another = "give the file that the run was begun with, or start again in another folder"
            raise ValueError(f"teacher.model ({self.config.model}) holds another model now: {another}")
        self._rng.bit_generator.state = state["rng"]
        self._reward.load_state_dict(state["reward"])
        self._seen = None if state["seen"] is None else np.array(state["seen"], dtype=np.float32)


def _ordered(classroom: Classroom, arms: Sequence[Arm] | None) -> Classroom:
    """The classroom with its arms in the order of the policy's outputs."""
    if arms is None:
        return classroom
    if sorted(arms) != sorted(classroom.arms):
        here = f"the corpus has {', '.join(classroom.arms)}"
        raise ValueError(f"teacher.arms is {', '.join(arms)} and {here}; name each of them once, or leave it out")
    return replace(
        classroom,
        sizes={arm: classroom.sizes[arm] for arm in arms},
        language_of={arm: classroom.language_of[arm] for arm in arms},
    )


@dataclass(frozen=True)
class Policy:
    """A small network: layers of weights (outputs, inputs) and biases, with an activation between them."""

    layers: Sequence[tuple[FloatArray, FloatArray]]
    activation: Callable[[FloatArray], FloatArray]
    greedy: bool  # its outputs are Q values; otherwise logits, or, with a spread, means
    spread: FloatArray | None = None  # standard deviation of the action: it chooses a mixture

    def outputs(self, seen: FloatArray) -> FloatArray:
        *inner, (weights, biases) = self.layers
        values = seen.astype(np.float32)
        for inner_weights, inner_biases in inner:
            values = self.activation(inner_weights @ values + inner_biases)
        outputs: FloatArray = (weights @ values + biases).astype(float)
        return outputs

    def check(self, path: Path, outlook: Outlook) -> None:
        inputs, outputs = self.layers[0][0].shape[1], self.layers[-1][0].shape[0]
        if (inputs, outputs) != (outlook.size, len(outlook.arms)):
            has = f"{path} has {inputs} inputs and {outputs} outputs"
            needed = f"{len(outlook.arms)} languages need {outlook.size} and {len(outlook.arms)}"
            raise ValueError(f"{has}, and {needed}; {TRAIN_AGAIN}")


ACTIVATIONS: Final[Mapping[str, Callable[[FloatArray], FloatArray]]] = {
    "Tanh": lambda values: np.tanh(values),
    "ReLU": lambda values: np.maximum(values, 0),
    "LeakyReLU": lambda values: np.where(values > 0, values, 0.01 * values),
    "ELU": lambda values: np.where(values > 0, values, np.expm1(np.minimum(values, 0))),
    "SiLU": lambda values: values / (1 + np.exp(-values)),
}


def read_policy(path: Path) -> Policy:
    """From a model's file: tensors and JSON alone. Networks that are not plain layers are refused."""
    weights, settings = _read_file(path)
    if settings.get("use_sde"):
        raise ValueError(f"{path} explores by state (use_sde), which is not read here; train it with use_sde=False")
    q_network = any(name.startswith("q_net.") for name in weights)
    prefix, kind = ("q_net.q_net", "ReLU") if q_network else ("mlp_extractor.policy_net", "Tanh")
    layers = _layers(weights, prefix)
    if not q_network and "action_net.weight" in weights:
        layers.append((weights["action_net.weight"], weights["action_net.bias"]))
    known = ("q_net.", "q_net_target.", "mlp_extractor.", "action_net.", "value_net.", "log_std")
    if not layers or not all(name.startswith(known) for name in weights):
        raise ValueError(f"{path} is not a plain network of PPO, A2C or DQN; train one of them with MlpPolicy")
    chosen = (settings.get("policy_kwargs") or {}).get("activation_fn", kind)
    name = str(chosen).removesuffix("'>").rpartition(".")[2]
    if name not in ACTIVATIONS:
        raise ValueError(f"{path} has the activation {name}; train it with one of {', '.join(ACTIVATIONS)}")
    spread = np.exp(weights["log_std"]) if "log_std" in weights else None
    return Policy(layers, ACTIVATIONS[name], q_network, spread)


def _layers(weights: Mapping[str, FloatArray], prefix: str) -> list[tuple[FloatArray, FloatArray]]:
    numbers = sorted(
        int(name.split(".")[-2]) for name in weights if name.startswith(prefix) and name.endswith("weight")
    )
    return [(weights[f"{prefix}.{number}.weight"], weights[f"{prefix}.{number}.bias"]) for number in numbers]


def _read_file(path: Path) -> tuple[dict[str, FloatArray], dict[str, Any]]:
    import torch

    remedy = "give the file that the method save of a stable-baselines3 model wrote"
    try:
        with zipfile.ZipFile(path) as archive:
            parts = {name: archive.getinfo(name) for name in ("data", "policy.pth")}
            if max(part.file_size for part in parts.values()) > LARGEST:
                raise ValueError(f"it is larger than {LARGEST:,} bytes")
            settings = json.loads(archive.read("data"))
            tensors = torch.load(io.BytesIO(archive.read("policy.pth")), map_location="cpu", weights_only=True)
        return {name: tensor.float().numpy() for name, tensor in tensors.items()}, dict(settings)
    except (zipfile.BadZipFile, pickle.UnpicklingError, KeyError, ValueError, RuntimeError, AttributeError) as error:
        said = " ".join(str(error).split())[:120]
        raise ValueError(f"{path} is not a model of stable-baselines3 ({said}); {remedy}") from None
