"""Schedules that are written down before training and change on the way: no observation, no cost.

``temperature.py`` anneals the temperature of the shares; ``two_phase.py`` has one static schedule after another;
``unimax.py`` computes how often each arm may repeat its text and spreads those updates over the run, early, late or
evenly; ``late.py`` keeps the low-resource languages for the end. All of them know only the classroom: sizes, target
tokens, the length of the run and of an update.
"""
