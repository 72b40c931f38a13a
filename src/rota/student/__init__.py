"""The student: a Transformer, how it learns, and how it translates."""

from rota.student.config import StudentConfig
from rota.student.nmt import NMT, NotFiniteError, build_student
from rota.student.transformer import Transformer

__all__ = ["NMT", "NotFiniteError", "StudentConfig", "Transformer", "build_student"]
