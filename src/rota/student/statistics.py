"""Plain statistics of a network's weights: norms of embeddings, mean and deviation of every matrix. No forward pass."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rota.student.pieces import join
from rota.student.transformer import Transformer
from rota.types import Batch, FloatArray


class WeightStatistics:
    """The part of a student that only looks at its weights."""

    network: Transformer

    def source_norms(self, batches: Sequence[Batch]) -> FloatArray:
        """(sentences,): norms of the embeddings of all source tokens, summed over each sentence."""
        joint = join(batches)
        norms_V = self.network.embedding.weight.detach().norm(dim=1).double().cpu().numpy()
        sums: FloatArray = np.add.reduceat(
            norms_V[joint.source], np.cumsum(joint.source_lengths) - joint.source_lengths
        )
        return sums

    def embedding_norm(self) -> float:
        """Frobenius norm of the embedding matrix."""
        return float(self.network.embedding.weight.detach().norm())

    def weight_moments(self) -> FloatArray:
        """(matrices, 2): mean and standard deviation of the entries of every weight matrix, in order.

        In float64: the weights of one update differ from those of the next in the last digits.
        """
        matrices = [parameter.detach() for parameter in self.network.parameters() if parameter.dim() > 1]
        found = [torch.stack(torch.std_mean(matrix.double(), correction=0)[::-1]) for matrix in matrices]
        moments: FloatArray = torch.stack(found).cpu().numpy()
        return moments
