"""From a trained run to translations, scores, and whether two systems differ.

``config.py`` says which checkpoints and which search. ``selection.py`` judges every window of checkpoints on dev
sentences that no teacher saw; ``translator.py`` loads checkpoints as one model and keeps translations as files,
perhaps with the engine of ``ctranslate.py``;
``evaluate.py`` scores them with ``metrics.py`` (and ``comet.py``), ``losses.py`` scores without translating, and every
score is recorded in the run's folder.
``comparison.py`` reads them back and tests two systems on the same sentences with ``significance.py``.
"""
