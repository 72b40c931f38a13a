"""Suites: whole comparisons of schedules, and what runs them.

``suites/`` and YAML files have suites (``suite``, on ``corpora``), which ``scale`` resizes; ``jobs.plan`` makes a run
of each row and seed, with stems that rows share, and says from its folder how far it is and how long the rest takes;
``checks`` refuses mistakes that would show only when text has been prepared.
``queue`` starts runs as processes, several at once, or ``on_ray`` as tasks of a cluster; ``board`` shows them. Nothing
is remembered but the run folders themselves.
"""
