"""From a corpus to a data folder, which is complete or absent.

``stages`` is the way in: it locks the folder, cleans, learns subwords, encodes and writes the folder. The work is
divided into ``units`` (clean one text, encode one piece), whose results are kept in a partial folder until all are
done, so that an interrupted preparation resumes. ``workers`` does units in several processes. ``cleaning`` says which
pairs are dropped and why, with ``digests`` to recognise duplicates; ``line_lengths`` finds text that is not aligned;
``mess`` degrades encoded pairs on purpose; ``folders`` opens and replaces finished folders. The number of processes
changes no byte.
"""
