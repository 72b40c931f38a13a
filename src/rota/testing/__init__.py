"""The contract that every teacher must pass, for teachers of users too.

``contract.py`` has :class:`TeacherContract`, a class of tests; a subclass names a config, and pytest runs them on it. A
:class:`Rehearsal` drives the teacher with the cadence of the real loop and a made-up student, whose losses depend on
the clock and on what is played.
"""

from rota.testing.contract import Rehearsal, TeacherContract, observation_of, same_state

__all__ = ["Rehearsal", "TeacherContract", "observation_of", "same_state"]
