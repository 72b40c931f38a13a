"""How fast and how lean this machine trains, as ratios from one run.

``pieces`` plans what is measured; ``run.py`` starts each piece in a process of its own (``measure_apart``), which
imports one of ``limit``, ``spending``, ``streams``, ``teaching``, ``memory`` and calls its ``measure``. ``work`` has
what these share: batches, students, clocks, operations. The rows that come back go into one JSON file (``rows.py``).
"""
