"""From a run's records to the numbers that a report shows.

``measures``: one value for each metric and language of a run. ``contrasts``: means of a row over its seeds, and paired
differences from a baseline. ``pooled``: all rows at once, equal time, regret. ``planned``: what a plan names, and what
it can detect. ``rewards``: what a learned teacher was told. ``cost``: time and tokens of a run. ``printed``: the
paper's own numbers.
"""
