"""What a saved Q network would do if one language were poorly learned: the probe of Section 5.5 of the paper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch

from rota.files import write_json
from rota.runs.checkpoints import Checkpoint
from rota.teachers.dqn.agent import q_network
from rota.types import Arm, FloatArray, State

# K languages, S losses in a state: the groups of the first language, then those of the second, ...

QFunction = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, slots=True)
class PolicyProbe:
    """Row: the language whose losses were amplified. Column: the softmax of a Q value. Plain values, for JSON."""

    step: int | None
    languages: list[Arm]  # where they are not the arms, these are the columns: see arms
    factor: float
    network: str  # the one that chose: target or online
    matrix: list[list[float]]
    q_values: list[list[float]]
    arms: list[Arm] = field(default_factory=list)  # the columns; empty: the languages

    def write(self, path: Path) -> Path:
        content = {name: value for name, value in asdict(self).items() if name != "arms" or value}
        write_json(path, content, checked=True)
        return path


def probe_q_network(
    network: QFunction, state: FloatArray, languages: Sequence[Arm], factor: float = 5.0
) -> tuple[FloatArray, FloatArray]:
    """Softmax and Q values, (K, arms): row k after the losses of language k in ``state`` were multiplied by this."""
    if len(state) % len(languages):
        raise ValueError(f"the state has {len(state)} losses; that is not a multiple of {len(languages)} languages")
    groups = len(state) // len(languages)
    states_KS = np.tile(state, (len(languages), 1)).astype(np.float32)
    for row in range(len(languages)):
        states_KS[row, row * groups : (row + 1) * groups] *= factor
    with torch.no_grad():
        values_KK = network(torch.from_numpy(states_KS)).numpy().astype(float)
    weights_KK = np.exp(values_KK - values_KK.max(axis=1, keepdims=True))
    return weights_KK / weights_KK.sum(axis=1, keepdims=True), values_KK


def probe_teacher_state(
    teacher: State, *, state: FloatArray | None = None, factor: float = 5.0, step: int | None = None
) -> PolicyProbe:
    """The probe of a saved DQN teacher, whatever wraps it, in its last state or in another that occurred."""
    dqn = _dqn_state(teacher)
    last = dqn["state"] if state is None else state
    if last is None:
        raise ValueError("the DQN teacher has observed nothing yet; take a checkpoint from after its warm-up")
    weights = dqn["learner"][dqn["acts_with"]]
    network = _network(weights)
    languages = list(dqn["languages"] if "languages" in dqn else dqn["arms"])
    matrix, values = probe_q_network(network, np.asarray(last), languages, factor)
    arms = list(dqn["arms"]) if "languages" in dqn else []
    return PolicyProbe(step, languages, factor, dqn["acts_with"], matrix.tolist(), values.tolist(), arms)


def probe_checkpoint(checkpoint: Checkpoint, *, factor: float = 5.0) -> PolicyProbe:
    """The probe of the teacher in any checkpoint of a run."""
    return probe_teacher_state(checkpoint.load_part("teacher"), factor=factor, step=checkpoint.step)


def _dqn_state(teacher: State) -> State:
    """The innermost teacher; wrappers such as the warm-up keep what they wrap under ``teacher``."""
    while "teacher" in teacher:
        teacher = teacher["teacher"]
    if "learner" not in teacher:
        raise ValueError("this teacher has no Q network; probe a run whose teacher is dqn")
    return teacher


def _network(weights: dict[str, torch.Tensor]) -> torch.nn.Sequential:
    """The network of saved weights; their shapes tell its sizes."""
    shapes = [tensor.shape for name, tensor in weights.items() if name.endswith("weight")]
    network = q_network(shapes[0][1], [shape[0] for shape in shapes[:-1]], shapes[-1][0])
    network.load_state_dict(weights)
    return network
