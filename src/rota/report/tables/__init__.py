"""From numbers to tables, each written as Markdown, LaTeX, CSV and HTML.

``scores``, ``budgets``, ``pooled`` and ``planned`` fill a ``table.Table`` with cells (text for people) and data (full
precision, for CSV).
"""
