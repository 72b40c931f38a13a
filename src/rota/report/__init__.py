"""From the files of runs to tables, figures and one page; no model is loaded, and torch is not imported.

``folders`` finds the runs, ``study`` sorts them into rows (schedules) and seeds and reads their records (``history``:
the step record in windows). ``numbers/`` makes values, means and differences of them; ``tables/``, ``figures/`` and
``sentences`` show these numbers. ``assemble`` puts everything into sections, ``several``
does so over corpora, and ``page`` writes them to disk. Of a single run, ``ending`` says what it saw and what is next,
``advice`` what its records mean, and ``single`` makes the sections of its page. ``recommend`` says
which schedule to use. ``made`` remembers what a report was made from.
"""
