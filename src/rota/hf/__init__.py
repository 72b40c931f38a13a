"""Rota's teachers in somebody else's training: Hugging Face's trainers, or any PyTorch loop.

``sampler.py``  asks a teacher before every update and gives the examples of the arm it chose; for any loop
``lessons.py``  the data sets of all arms with their teacher: records, checkpoints, a report (``report.py``)
``student.py``  a model as the gauges of ``rota train`` measure it: losses, gradients, averaged weights
``sources.py``  how much a model takes from the source, for the gate of ``align``
``trainer.py``  ``taught(Trainer)``: the trainer that takes lessons
"""

from rota.hf.lessons import Lessons
from rota.hf.sampler import LessonSampler
from rota.hf.trainer import taught

__all__ = ["LessonSampler", "Lessons", "taught"]
