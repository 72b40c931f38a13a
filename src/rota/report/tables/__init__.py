"""From numbers to tables, each written as Markdown, LaTeX, CSV and HTML.

``scores``, ``budgets``, ``pooled``, ``planned`` and ``groups`` fill a ``table.Table`` with cells (text for people) and
data (full precision, for CSV).
"""
