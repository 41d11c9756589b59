"""Draws a report of a comparison as bars, in an SVG that follows the reader's light or dark mode."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from pathlib import Path

from bench.figure import Figure, Report

WIDTH, LABEL, VALUE = 860, 300, 110
ROW, BAR, TOP = 24, 16, 64
STYLE = """\
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .title { font-size: 16px; font-weight: 600 }
  .about { fill: #59636e }
  rect { fill: #8c959f }
  .pgrouse { fill: #0969da }
  .limit { fill: #d0d7de }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc }
    .about { fill: #9198a1 }
    rect { fill: #656c76 }
    .pgrouse { fill: #4493f8 }
    .limit { fill: #3d444d }
  }"""

# For each report: the title of its chart, and the figures that it shows.
SHOWN: dict[str, tuple[str, Callable[[Figure], bool]]] = {
    "peers-drain": ("Drain of no-op messages, messages/s", lambda figure: True),
    "peers-wake": ("An idle worker, p50 from the publishing call, ms", lambda f: f.what.endswith("from the call, p50")),
    "peers-load": ("1,000 messages a second, p99 from the publishing call, ms", lambda f: f.what.endswith("call, p99")),
    "peers-publish": ("Bulk publish, rows/s", lambda figure: True),
}


def write(reports: list[Report], folder: Path) -> None:
    """Write the chart of each report into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for report in reports:
        (folder / f"{report.name}.svg").write_text(draw(report))


def draw(report: Report) -> str:
    """Return the chart of a report, with the best figure on top."""
    title, is_shown = SHOWN[report.name]
    more_is_better = title.endswith("/s")
    figures = sorted(filter(is_shown, report.figures), key=lambda each: each.median, reverse=more_is_better)
    rows = "\n".join(_row(number, figure, figures) for number, figure in enumerate(figures))
    about = f"median of {len(figures[0].rounds)} rounds; {'more' if more_is_better else 'less'} is better"
    height = TOP + ROW * len(figures) + 8
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">\n'
        f"<style>\n{STYLE}\n</style>\n"
        f'<text class="title" x="12" y="26">{escape(title)}</text>\n<text class="about" x="12" y="46">{about}</text>\n'
        f"{rows}\n</svg>\n"
    )


def _row(number: int, figure: Figure, figures: list[Figure]) -> str:
    most = max(each.median for each in figures)
    length = max(1.0, figure.median / most * (WIDTH - LABEL - VALUE))
    top = TOP + ROW * number
    name = escape(figure.what.removesuffix(", from the call, p50").removesuffix(", from the call, p99"))
    value = f"{figure.median:,.0f}" if figure.median >= 100 else f"{figure.median:.1f}"
    return (
        f'<text x="{LABEL - 10}" y="{top + 13}" text-anchor="end">{name}</text>'
        f'<rect class="{_kind(figure)}" x="{LABEL}" y="{top}" width="{length:.1f}" height="{BAR}" rx="2"/>'
        f'<text x="{LABEL + length + 8:.1f}" y="{top + 13}">{value}</text>'
    )


def _kind(figure: Figure) -> str:
    if figure.what.startswith(("plain SQL", "COPY")):
        return "limit"
    return "pgrouse" if figure.what.startswith("pgrouse") else "peer"
