"""From parallel text to batches.

``corpora`` opens text as pairs of sentences. ``preparation`` cleans it, learns one vocabulary (``subwords``) for all
languages, encodes every pair and writes a data folder. ``store`` opens such a folder: memory-mapped arrays of tokens.
``batches`` draws endless, resumable batches of one language or a mixture from it; ``order`` says which sentences go
together; ``selection`` ranks sentences by difficulty for batches of the easiest ones; ``division`` divides dev sets
between teachers and checkpoint selection.
"""
