"""Suites: whole comparisons of schedules, and what runs them."""
