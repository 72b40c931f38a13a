"""One run's folder. Training writes into it, everything else reads it, and this is the only place that knows its files.

``run.py``          :class:`Run`: where each file lies, what ``run.json`` says, the lock, how far the run is
``arms.py``         the arms of a run by language and by source, in the order in which they are listed
``records.py``      the ``.jsonl`` files: appended to, cut back when a run resumes, read plain or compressed
``entries.py``      what an entry of each of them must have
``checkpoints.py``  which checkpoints there are and which are intact; ``tensors.py`` reads and writes their arrays
``written.py``      what the folder has at least: lines of records that are added to later, and checkpoints
``earlier.py``      what checkpoints of earlier versions say, in the words of this one
``standing.py``     which models were scored, and which one of them stands for the run
``check.py``        whether every file is still what was written

Nothing here imports torch before a checkpoint is saved or loaded: a report, a status or a list of runs starts at once.
"""

from rota.runs.records import REMEDY, Entry, Record, read_record
from rota.runs.run import Run

__all__ = ["REMEDY", "Entry", "Record", "Run", "read_record"]
