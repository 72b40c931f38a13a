"""From numbers to figures, each drawn once and written as PNG and as SVG in the colours of the page.

``results``, ``shares`` and ``teachers`` draw on a ``drawing.canvas``; ``drawing.finish`` makes a ``Picture`` of it.
"""
