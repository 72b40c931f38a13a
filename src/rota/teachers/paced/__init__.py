"""Teachers that move on when a language is learned well enough: ``ccl_m.py`` and ``weight_change.py``.

Both are told one kind of number from time to time, dev losses or how far the weights of the student have moved, and
keep a small state of their own: which languages are admitted, or which one is being trained on. The originals have no
public code; docs/teachers.md says what is our reading.
"""
