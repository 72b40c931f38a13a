"""Trouble that a run notices while it goes on: each kind once, in plain words, with what to do about it.

``base.py`` has :class:`Alarms`, which the loop calls after every update, ``tell`` and validation. It hands what
happened to its detectors, lets each alarm through once, and is saved with the run. A detector (:class:`Detector`) looks
for one kind of trouble: text that is not a translation (``unaligned.py``), an arm that is learned by heart
(``by_heart.py``), a language that is forgotten (``forgetting.py``). Alarms are written to ``alarms.jsonl``, logged,
shown by listeners and listed in reports.
"""

from rota.training.alarms.base import Alarms, Detector
from rota.types import Alarm

__all__ = ["Alarm", "Alarms", "Detector"]
