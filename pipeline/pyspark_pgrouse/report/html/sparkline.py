"""A small chart without axes: which way something goes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_pgrouse.report.html.markup import Markup, empty, tag

WIDTH, HEIGHT, POINTS = 100, 24, 50


def sparkline(values: Sequence[float | None], text: str) -> Markup:
    """Draw columns, the highest of them as high as there is room. text: what they are, and what the highest one is."""
    kept = coarse(values)
    most = max((v for v in kept if v), default=0)
    width = WIDTH / max(1, len(kept))
    columns = "".join(_column(i, v / most, width) for i, v in enumerate(kept) if v and most)
    return tag(
        "svg",
        tag("title", text),
        empty("path", d=columns),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        class_="spark",
    )


def coarse(values: Sequence[float | None]) -> list[float | None]:
    """Return at most 50 values: of neighbours the greatest."""
    every = -(-len(values) // POINTS) or 1
    groups = (values[i : i + every] for i in range(0, len(values), every))
    return [max((v for v in group if v is not None), default=None) for group in groups]


def _column(i: int, part: float, width: float) -> str:
    height = max(1.0, part * HEIGHT)
    return f"M{i * width:.4g} {HEIGHT}v-{height:.3g}h{width * 0.8:.3g}v{height:.3g}z"
