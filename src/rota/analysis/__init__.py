"""Tables and figures from the files of a run, and from nothing else."""
