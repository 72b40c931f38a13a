"""One teacher for all schedules that weigh the arms: a signal, an update rule, and the published methods as presets.

A signal (``signals.py``, ``gradients.py``) makes a number for each arm of what was measured; the teacher
(``teacher.py``) smooths and scales it, and a rule (``rules.py``) turns the numbers into the distribution that arms are
drawn from. ``presets.py`` is a table: each published method is a signal, a rule and their settings.
"""
