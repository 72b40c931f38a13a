"""The loop that brings teacher and student together, and what it measures, shows and writes."""
