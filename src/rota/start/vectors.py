"""The first weights of a run that starts from a model: rows of the embeddings are found by the names of their tokens.

The vocabulary may have been cut since, or have tags and subwords that are new.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from rota.data.ready_made.editing import is_made_up
from rota.data.ready_made.reading import MASK
from rota.data.subwords import SPECIALS, UNK, Subwords
from rota.settings import ConfigError
from rota.start.points import open_start
from rota.student.config import StudentConfig

logger = logging.getLogger(__name__)

OVERLAP: Final = 0.5
"""The share of the subwords, without symbols and tags, that the start must know if some of its own are gone."""


def first_weights(student: StudentConfig, subwords: Subwords) -> dict[str, Tensor]:
    """The weights of the starting point for a network with this vocabulary."""
    assert student.start is not None
    start = open_start(student.start)
    weights, origins = start.weights(), rows(start.subwords, subwords, start.folder)
    for name in ("embedding.weight", "output.weight"):
        if name in weights:
            weights[name] = _gathered(weights[name], origins)
    return weights


def rows(old: Subwords, new: Subwords, folder: Path) -> list[list[int]]:
    """For each token of the new vocabulary the old ids whose vectors it starts from, as their mean.

    Its own, if there was one; of a new tag those of all tags; of a new subword those of its pieces.
    """
    ids = {token: number for number, token in enumerate(old.tokens) if token is not None}
    tags, new_tags = old.tag_ids, set(new.tag_ids)
    found: list[list[int]] = []
    unknown = 0
    for number, token in enumerate(new.tokens):
        if token in ids:
            found.append([ids[token]])
        elif token is None:
            found.append([number if number < old.vocabulary else UNK])
        elif number in new_tags:
            found.append(tags or [UNK])
        else:
            found.append([piece for piece in old.pieces(token) if piece != UNK] or [UNK])
            unknown += 1
    ours, theirs = (_texts(subwords) for subwords in (new, old))
    if unknown > (1 - OVERLAP) * len(ours) and not theirs <= ours:
        differ = f"{unknown:,} of the {len(ours):,} subwords of the data are not in the vocabulary of {folder}"
        raise ConfigError(f"{differ}; leave data.subwords.model out, so that its tokenizer is used")
    if unknown:
        logger.info("%d new subwords start from the mean of their pieces", unknown)
    return found


def _texts(subwords: Subwords) -> set[str]:
    """The subwords that text is made of."""
    tags = set(subwords.tag_ids)
    tokens = {token for number, token in enumerate(subwords.tokens) if token is not None and number not in tags}
    return {token for token in tokens if token not in (*SPECIALS, MASK) and not is_made_up(token)}


def _gathered(matrix: Tensor, origins: list[list[int]]) -> Tensor:
    result = matrix[torch.tensor([origin[0] for origin in origins])]
    for number, origin in enumerate(origins):
        if len(origin) > 1:
            result[number] = matrix[torch.tensor(origin)].mean(0)
    return result
