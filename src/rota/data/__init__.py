"""From parallel text to batches: corpora, cleaning, subwords, the store and its streams."""
