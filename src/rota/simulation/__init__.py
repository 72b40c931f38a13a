"""Teachers on a scripted student, in seconds: for understanding them and for tests, not for results.

``worlds.py`` has students whose dev losses follow closed-form curves; ``simulate.py`` lets a teacher choose for one of
them, with the cadence of the real loop (``training/turns.py``), and compares it with the best fixed mixture there.
"""
