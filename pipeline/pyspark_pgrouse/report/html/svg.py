"""Drawings: Vega-Lite draws them when the report is made, so the page needs no script for them and loads nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import vl_convert
from markupsafe import Markup

from pyspark_pgrouse.report.html.formatting import fit

# Colours are variables of the page's style: a drawing follows the reader's choice of light or dark.
CONFIG = {
    "aria": False,
    "background": None,
    "font": "inherit",
    "view": {"stroke": None},
    "axis": {
        "labelColor": "var(--soft)",
        "labelFontSize": 12,
        "gridColor": "var(--line)",
        "tickColor": "var(--line)",
        "domain": False,
    },
    "axisX": {"grid": False, "labelFlush": False, "labelOverlap": True, "tickColor": "var(--soft)"},
    "axisY": {"ticks": False, "labelPadding": 8},
}
# The size of a sparkline.
WIDTH, HEIGHT, POINTS = 120, 24, 60
# No screen shows a tenth of a pixel.
_DECIMALS = re.compile(r"(\d\.\d)\d+")


def drawing(spec: dict[str, Any], text: str, css: str) -> Markup:
    """Return a specification as SVG.

    Args:
        spec: a specification of Vega-Lite. From messages it may contain only numbers.
        text: a description of the drawing, for people who do not see it.
        css: the class of the element around it.
    """
    svg = vl_convert.vegalite_to_svg({"padding": 1, "config": CONFIG} | spec)
    drawn = Markup(_DECIMALS.sub(r"\1", svg))  # noqa: S704 - from messages it has only numbers
    return Markup('<div role="img" aria-label="{}" class="{}">{}</div>').format(fit(text), css, drawn)


def sparkline(values: Sequence[float | None], text: str, colour: str = "c1") -> Markup:
    """Draw a small chart without axes that uses the full height. text: its meaning, and its highest value."""
    every = -(-len(values) // POINTS) or 1
    # Neighbours become their maximum.
    kept = [max((v for v in values[i : i + every] if v is not None), default=0) for i in range(0, len(values), every)]
    spec = {
        "width": WIDTH,
        "height": HEIGHT,
        "data": {"values": [{"at": i, "value": value} for i, value in enumerate([*kept, *kept[-1:]])]},
        "mark": {"type": "area", "interpolate": "step-after", "color": f"var(--{colour})"},
        "encoding": {
            "x": {"field": "at", "type": "quantitative", "axis": None},
            "y": {"field": "value", "type": "quantitative", "axis": None, "scale": {"nice": False}},
        },
    }
    return drawing(spec, text, "spark")
