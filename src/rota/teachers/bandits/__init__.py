"""Bandits: a value for each arm, estimated from what playing it gave.

A bandit is told the dev losses after its plays; ``rewards.py`` turns them into gains; the gains move the values; the
values are ranked (``choice.py``) at the next ask. ``base.py`` has what all share, ``tscl.py`` Algorithm 1 of the paper
and the config of all of them, ``matiisen.py`` the other variants of Matiisen et al. 2017.
"""
