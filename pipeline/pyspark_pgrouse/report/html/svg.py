"""Drawings: Vega-Lite draws them when the report is made, so the page needs no script for them and loads nothing."""

from __future__ import annotations

import re
from typing import Any

import vl_convert

from pyspark_pgrouse.report.html.markup import Markup, tag

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
    return tag("div", Markup(_DECIMALS.sub(r"\1", svg)), role="img", aria_label=text, class_=css)
