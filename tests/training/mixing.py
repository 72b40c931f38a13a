"""A schedule of a user's own whose decisions say everything that a decision can: for test_streams.py."""

from typing import ClassVar, Literal

import numpy as np

from rota.teachers import TeacherConfig
from rota.types import Decision, Mixture, Selection


class Mixing:
    """In turns: a mixture of sentences whose shares change, one of batches, a selection, weights of the loss."""

    watches = ()

    def __init__(self, arms, kinds):
        self.arms, self.kinds = arms, kinds

    def ask(self, step):
        shares = {arm: 1.0 + (step + index) % 3 for index, arm in enumerate(self.arms)}
        kind = self.kinds[step % len(self.kinds)]
        if kind == "sentences":
            return Decision("blend", "mixed", mixture=Mixture(shares, "sentence"))
        if kind == "batches":
            return Decision("blocks", "mixed", mixture=Mixture(shares), weights={self.arms[0]: 0.5})
        if kind == "easy":
            return Decision(self.arms[0], "easy", selection=Selection("length", min(1.0, 0.3 + 0.1 * step)))
        return Decision(self.arms[step % len(self.arms)], "plain")

    def tell(self, observation):
        return None

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        """It remembers nothing."""


class MixingConfig(TeacherConfig):
    name: str = "mixing:MixingConfig"
    kinds: tuple[Literal["sentences", "batches", "easy", "plain"], ...] = ("sentences", "batches", "easy", "plain")
    listens: ClassVar[bool] = False

    def build(self, classroom, rng: np.random.Generator):
        return Mixing(classroom.arms, self.kinds)
