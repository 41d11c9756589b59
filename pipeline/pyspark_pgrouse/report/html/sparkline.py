"""A small chart without axes that shows a trend."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_pgrouse.report.html.markup import Markup
from pyspark_pgrouse.report.html.svg import drawing

WIDTH, HEIGHT, POINTS = 120, 24, 60


def sparkline(values: Sequence[float | None], text: str, colour: str = "c1") -> Markup:
    """Draw an area that uses the full height. text: its meaning, and the value of its highest point."""
    kept = coarse(values, POINTS)
    spec = {
        "width": WIDTH,
        "height": HEIGHT,
        "data": {"values": [{"at": i, "value": value or 0} for i, value in enumerate([*kept, *kept[-1:]])]},
        "mark": {"type": "area", "interpolate": "step-after", "color": f"var(--{colour})"},
        "encoding": {
            "x": {"field": "at", "type": "quantitative", "axis": None},
            "y": {"field": "value", "type": "quantitative", "axis": None, "scale": {"nice": False}},
        },
    }
    return drawing(spec, text, "spark")


def coarse(values: Sequence[float | None], points: int) -> list[float | None]:
    """Return at most this many values: neighbours become their maximum."""
    every = -(-len(values) // points) or 1
    groups = (values[i : i + every] for i in range(0, len(values), every))
    return [max((v for v in group if v is not None), default=None) for group in groups]
