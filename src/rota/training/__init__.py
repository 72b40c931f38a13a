"""One run: a loop in which a teacher decides, the student is updated, and what happened is recorded and saved.

``loop.py`` asks the teacher (``turns.py``: when), draws batches (``streams.py``) and updates the student; ``probe.py``
measures what the teacher watches (on which sentences: ``devsets.py``), and it is told. ``journal.py`` writes records,
``listeners.py`` shows them; ``distributed.py`` is the same run by several processes. Settings are in ``config.py``.
``branching.py`` lets a run begin where another one ended its warm-up.
"""
