"""Curricula: which sentences of a language come when, or count how much, whatever teacher chooses the language.

A teacher's config names one under ``curriculum``; ``build_teacher`` puts it around everything else. A curriculum
(``base.py``) lets the teacher inside decide and adds a selection of sentences or weights of the loss to its decision;
it may watch measures of its own. ``competence.py`` goes by the clock, ``norm.py`` by the norm of the student's
embeddings, ``relative_loss.py`` by how much the loss of each sentence falls, ``dropout.py`` by how steady predictions
are, ``actor_critic.py`` by what it has learned about features of sentences. The scores of the sentences are columns of
``rota/data/selection.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from rota.teachers.curricula.actor_critic import ActorCriticConfig
from rota.teachers.curricula.base import CurriculumConfig
from rota.teachers.curricula.competence import CompetenceConfig
from rota.teachers.curricula.dropout import DropoutVarianceConfig
from rota.teachers.curricula.norm import NormConfig
from rota.teachers.curricula.relative_loss import RelativeLossConfig

CURRICULA: Final[Mapping[str, type[CurriculumConfig]]] = {
    "competence": CompetenceConfig,
    "norm": NormConfig,
    "relative-loss": RelativeLossConfig,
    "actor-critic": ActorCriticConfig,
    "dropout-variance": DropoutVarianceConfig,
}


def _named(value: Any) -> Any:
    """``curriculum: norm`` is short for ``{name: norm}``; without a name it is ``competence``."""
    if isinstance(value, str):
        return {"name": value}
    return {"name": "competence", **value} if isinstance(value, Mapping) else value


_Any = CompetenceConfig | NormConfig | RelativeLossConfig | DropoutVarianceConfig | ActorCriticConfig

CurriculumField = Annotated[Annotated[_Any, Field(discriminator="name")] | None, BeforeValidator(_named)]
"""A field for one of them, or none."""
