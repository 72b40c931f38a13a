"""Tokenizers that were made elsewhere, in place of learned subwords (``data.subwords.model``).

``reading.py`` finds out what a file or folder is (a SentencePiece model, a ``tokenizers`` file, the tokenizer of an
M2M100 or NLLB checkpoint, of a run or of its export) and brings it into one form, that of ``tokenizers``; it relies on
``sentencepiece.py``, which reads and writes SentencePiece's files. ``editing.py`` cuts such a vocabulary, adds subwords
and tags to it and numbers it anew. ``adopting.py`` does what the settings ask for and makes the run's subwords of it.
"""
