"""The contract that every teacher must pass, for teachers of users too.

``contract.py`` has :class:`TeacherContract`, a class of tests; a subclass names a config, and pytest runs them on it. A
:class:`Rehearsal` drives the teacher with the cadence of the real loop and a made-up student, whose losses depend on
the clock and on what is played. ``no_harm.py`` has :class:`NoHarm`, one more class of tests: beside uniform, in runs
of three lengths with a scripted student, a teacher must not end much worse.
"""

from rota.testing.contract import Rehearsal, TeacherContract, observation_of, same_state
from rota.testing.no_harm import NoHarm

__all__ = ["NoHarm", "Rehearsal", "TeacherContract", "observation_of", "same_state"]
