"""Teachers on a scripted student, in seconds: for understanding them and for tests, not for results.

``worlds.py`` has students whose dev losses follow closed-form curves; ``simulate.py`` lets a teacher choose for one of
them, with the cadence of the real loop (``training/turns.py``), and compares it with the best fixed mixture there;
``league.py`` does so with all teachers in several worlds. ``environments.py`` is for learners outside Rota: Gymnasium
environments with a scripted student (``ClassroomEnv``) or a real one (``StudentEnv``).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rota.simulation.environments import ClassroomEnv, StudentEnv

__all__ = ["ClassroomEnv", "StudentEnv"]


def __getattr__(name: str) -> Any:
    """The environments need Gymnasium (``pip install 'rota-nmt[rl]'``), so they are imported when asked for."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from rota.simulation import environments
    except ModuleNotFoundError as error:
        raise ImportError(f"{name} needs {error.name}; install it with: pip install 'rota-nmt[rl]'") from None
    return getattr(environments, name)
