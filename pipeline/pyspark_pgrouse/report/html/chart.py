"""Charts over time: the drawing, its legend, and the same numbers as a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from markupsafe import Markup

from pyspark_pgrouse.report.html.formatting import NOTHING, moment
from pyspark_pgrouse.report.html.svg import drawing
from pyspark_pgrouse.report.window import Window

# The format of the labels of the axis: expressions of Vega.
NUMBERS = "abs(datum.value) < 1 ? format(datum.value, '~g') : format(datum.value, '~s')"
DURATIONS = (
    "datum.value < 0.001 ? format(datum.value * 1e6, '~g') + 'µs' : datum.value < 1 ? "
    "format(datum.value * 1e3, '~g') + 'ms' : "
    "datum.value < 1000 ? format(datum.value, '~g') + 's' : format(datum.value / 3600, '.1~f') + 'h'"
)
TIMES = {"milliseconds": "%H:%M:%S", "seconds": "%H:%M:%S", "minutes": "%H:%M", "hours": "%H:%M"} | dict.fromkeys(
    ("day", "date", "week", "month", "quarter", "year"), "%-d %b"
)


@dataclass(frozen=True)
class Size:
    """Each drawing is made twice: for a wide page, and for a phone, where the letters would otherwise be too small."""

    css: str
    width: int
    height: int
    points: int
    ticks: int


SIZES = (Size("wide", 1060, 260, 300, 9), Size("narrow", 380, 220, 60, 4))


@dataclass(frozen=True)
class Series:
    """One line or area of a chart.

    It has a name, a colour in the style, one value per bucket (None = no value), and how a value is written.
    """

    name: str
    colour: str
    values: Sequence[float | None]
    show: Callable[[float], str]


@dataclass(frozen=True)
class Chart:
    """A chart over the buckets of a window.

    Attributes:
        title: the title; `text` describes the chart in a sentence for people who do not see it.
        stacked: areas on top of each other.
        lines: lines that are drawn over the areas.
        labels: the format of the labels of the axis: an expression of Vega.
        whole: the values are whole numbers only.
    """

    title: str
    text: str
    window: Window
    stacked: Sequence[Series] = ()
    lines: Sequence[Series] = ()
    labels: str = NUMBERS
    log: bool = False
    whole: bool = False

    @property
    def series(self) -> tuple[Series, ...]:
        """All lines and areas, in the order of the legend."""
        return (*self.lines, *self.stacked)

    def drawings(self) -> list[Markup]:
        """Return the drawing for each size."""
        return [drawing(self.spec(size), self.text, f"drawing {size.css}") for size in SIZES]

    def rows(self) -> list[tuple[str, ...]]:
        """Return the same numbers as rows: the time of each bucket, and the value of each series."""
        return [(moment(at), *(_shown(s, i) for s in self.series)) for i, at in enumerate(self.window.starts())]

    def spec(self, size: Size) -> dict[str, Any]:
        """Return the specification of a drawing."""
        layers = [self._areas(size)] if self.stacked else []
        layers += [self._line(series, size) for series in self.lines]
        return {
            "width": size.width,
            "height": size.height,
            "autosize": {"type": "fit", "contains": "padding"},
            "layer": [*layers, *self._deploy()],
        }

    def _areas(self, size: Size) -> dict[str, Any]:
        keys = [str(i) for i in range(len(self.stacked))]
        values = [
            {"at": at, "value": value, "series": key}
            for key, series in zip(keys, self.stacked, strict=True)
            for at, value in self._steps(series, size)
        ]
        colours = {"domain": keys, "range": [f"var(--{series.colour})" for series in self.stacked]}
        return {
            "data": {"values": values},
            "mark": {"type": "area", "interpolate": "step-after"},
            "encoding": self._axes(size, stack="zero")
            | {
                "color": {"field": "series", "type": "nominal", "scale": colours, "legend": None},
                # The first series is at the bottom.
                "order": {"field": "series", "type": "nominal", "sort": "ascending"},
            },
        }

    def _line(self, series: Series, size: Size) -> dict[str, Any]:
        # A line is interrupted where nothing was measured. A part with one value is a dot, because its line has round
        # ends.
        values = [{"at": at, "value": value, "part": part} for part, at, value in self._parts(series, size)]
        return {
            "data": {"values": values},
            "mark": {"type": "line", "color": f"var(--{series.colour})", "strokeCap": "round", "strokeJoin": "round"},
            "encoding": self._axes(size) | {"detail": {"field": "part", "type": "nominal"}},
        }

    def _axes(self, size: Size, stack: str | None = None) -> dict[str, Any]:
        begin, end = self._span()
        time = {"format": TIMES, "tickCount": size.ticks, "title": None}
        return {
            "x": {
                "field": "at",
                "type": "temporal",
                "axis": time,
                "scale": {"type": "utc", "domain": [begin, end], "nice": False},
            },
            "y": {
                "field": "value",
                "type": "quantitative",
                "axis": {"labelExpr": self.labels, "title": None, "tickCount": 4} | self._whole_ticks(),
                "scale": {"type": "log", "nice": True} if self.log else {"zero": True},
                "stack": stack,
            },
        }

    def _whole_ticks(self) -> dict[str, Any]:
        return {"tickMinStep": 1} if self.whole else {}

    def _deploy(self) -> Iterator[dict[str, Any]]:
        """Yield the line of a deploy."""
        mark = self.window.mark
        if mark is None or not self.window.is_deploy:
            return
        begin, end = self._span()
        at = _ms(mark)
        x = {"field": "at", "type": "temporal", "scale": {"type": "utc", "domain": [begin, end], "nice": False}}
        data = {"data": {"values": [{"at": at}]}, "encoding": {"x": x}}
        is_late = (at - begin) / (end - begin) > 0.8  # noqa: PLR2004 - there is no room at its right
        side = {"align": "right", "dx": -6} if is_late else {"align": "left", "dx": 6}
        yield data | {"mark": {"type": "rule", "color": "var(--ink)", "strokeDash": [5, 4], "strokeWidth": 1.5}}
        label = {"type": "text", "text": "deploy", "y": 8, "color": "var(--ink)", "fontSize": 12}
        yield data | {"mark": label | side}

    def _span(self) -> tuple[int, int]:
        starts = self.window.starts()
        return _ms(starts[0]), _ms(starts[-1]) + self.window.bucket_s * 1000

    def _steps(self, series: Series, size: Size) -> list[tuple[float, float]]:
        """Return where each step begins, and where the last one ends.

        Several buckets become their mean, so that areas keep their size.
        """
        steps = [(at, sum(v or 0 for v in group) / len(group)) for at, _, group in self._groups(series, size)]
        return [*steps, (self._span()[1], steps[-1][1])]

    def _parts(self, series: Series, size: Size) -> Iterator[tuple[int, float, float]]:
        """Yield the number of the part of the line, the middle of the step and the value.

        Several buckets become their maximum.
        """
        # A logarithmic axis has no zero.
        least = min((v for v in series.values if v), default=1.0) if self.log else 0.0
        part = 0
        for begin, end, group in self._groups(series, size):
            known = [v for v in group if v is not None]
            if known:
                yield part, (begin + end) / 2, max([*known, least])
            else:
                part += 1

    def _groups(self, series: Series, size: Size) -> Iterator[tuple[float, float, Sequence[float | None]]]:
        """Yield the values of the drawn steps, and where each begins and ends.

        If there is no room for every bucket, a step combines several.
        """
        begin, end = self._span()
        every = -(-len(series.values) // size.points)
        width = every * self.window.bucket_s * 1000
        for i in range(0, len(series.values), every):
            at = begin + i // every * width
            yield at, min(at + width, end), series.values[i : i + every]


def _shown(series: Series, i: int) -> str:
    value = series.values[i]
    return NOTHING if value is None else series.show(value)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
