"""Translating: greedy and beam search over one network or an ensemble, one token at a time.

Data flow: ``batches`` puts sentences of similar length together and gives the batches out, on a CPU to the processes
of ``workers`` if there are several cores. Of each batch, ``decoder`` reads the last token of every hypothesis and says
how likely each next one is, and ``beams`` decides which hypotheses go on. The translations come back in order.
"""

from rota.student.search.batches import MAX_LENGTH, Part, Search, translate, translate_parts
from rota.student.search.beams import Hypothesis
from rota.student.search.decoder import EncoderCache

__all__ = ["MAX_LENGTH", "EncoderCache", "Hypothesis", "Part", "Search", "translate", "translate_parts"]
