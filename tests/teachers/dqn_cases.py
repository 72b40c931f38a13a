"""A small DQN teacher and a made-up student for it."""

import numpy as np
import torch

from rota.measures import DevLoss, GroupLosses, JointLoss
from rota.teachers import Classroom, build_teacher
from rota.teachers.dqn.config import DQNConfig
from rota.testing import observation_of

ARMS = ("az", "tr", "ru")
GROUPS = 2
CLASSROOM = Classroom({"az": 5, "tr": 90, "ru": 80}, low_resource=("az",), steps=400)
SMALL = {
    "groups": GROUPS,
    "hidden": (5, 4),
    "replay_minimum": 4,
    "replay_capacity": 9,
    "replay_batch": 6,
    "warmup": 30,
    "epsilon_steps": 200,
    "learning_rate": 0.01,
    "tau": 0.1,
}


def prototype_at(step):
    """Six losses that fall at different speeds."""
    return np.array([2 + number + 3 / (1 + 0.01 * step * (number + 1)) for number in range(len(ARMS) * GROUPS)])


def losses_at(step, arm):
    """Joint loss and the losses by language; what was played leaves its mark."""
    joint = 4 - 0.005 * step + 0.5 * ARMS.index(arm) * np.cos(step)
    return joint, {other: joint + 0.1 * number for number, other in enumerate(ARMS)}


def observation(step, decision, watches, **changes):
    """What the student shows after ten updates of the decision; ``changes`` take the place of its values."""
    joint, by_language = losses_at(step, decision.arm)
    values = {"joint": joint, "dev": {decision.arm: by_language[decision.arm]}, "groups": prototype_at(step), **changes}
    kinds = {"joint": JointLoss, "dev": DevLoss, "groups": GroupLosses}
    measured = {kinds[name]: value for name, value in values.items() if value is not None}
    return observation_of(watches, step, decision, measured, updates=10)


def play(teacher, steps, start=0):
    decisions = []
    for step in range(start, steps, 10):
        decisions.append(teacher.ask(step))
        teacher.tell(observation(step + 10, decisions[-1], teacher.watches))
    return decisions


def make(seed=3, **options):
    return build_teacher(DQNConfig(**{**SMALL, **options}), CLASSROOM, np.random.default_rng(seed))


def weights_of(network):
    linear = [layer for layer in network if isinstance(layer, torch.nn.Linear)]
    return [layer.weight.detach().numpy() for layer in linear] + [layer.bias.detach().numpy() for layer in linear]
