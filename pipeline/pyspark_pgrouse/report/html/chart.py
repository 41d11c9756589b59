"""Charts over time. The drawing stretches with the page; its labels are text beside it, so they can be read at any width."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark_pgrouse.report.html.formatting import moment
from pyspark_pgrouse.report.html.markup import Markup, empty, named, tag
from pyspark_pgrouse.report.html.scale import Linear, Log, Scale, time_ticks
from pyspark_pgrouse.report.html.table import data_table
from pyspark_pgrouse.report.window import Window

WIDTH, HEIGHT = 1000, 240


@dataclass(frozen=True)
class Series:
    """One line or area: its name, the class of its colour, one value per bucket (None = none), and how a value is written."""

    name: str
    colour: str
    values: Sequence[float | None]
    show: Callable[[float], str]


@dataclass(frozen=True)
class Chart:
    """A chart over the buckets of a window.

    Attributes:
        ident: a name that no other chart of the page has.
        title: what it shows; `text` says it in a sentence to those who do not see it.
        stacked: areas on top of each other.
        lines: drawn over them.
    """

    ident: str
    title: str
    text: str
    window: Window
    stacked: Sequence[Series] = ()
    lines: Sequence[Series] = ()
    log: bool = False
    whole: bool = False

    def render(self) -> Markup:
        """Return the figure: legend, drawing, axes, and the same numbers as a table."""
        scale = self._scale()
        plot = tag("div", self._y_axis(scale), self._drawing(scale), self._mark(), class_="plot")
        table = data_table(("time (UTC)", *(s.name for s in self._series)), self._rows())
        return tag(
            "figure",
            tag("figcaption", tag("h3", self.title), self._legend()),
            plot,
            self._x_axis(),
            tag("details", tag("summary", "Numbers"), tag("div", table, class_="scroll")),
            class_="chart",
        )

    @property
    def _series(self) -> tuple[Series, ...]:
        return (*self.lines, *self.stacked)

    def _scale(self) -> Scale:
        values = [v for s in self._series for v in s.values if v is not None]
        if self.log:
            positive = [v for v in values if v > 0] or [0.001]
            return Log.over(min(positive), max(positive))
        sums = [sum(v or 0 for v in bucket) for bucket in zip(*(s.values for s in self.stacked), strict=True)]
        return Linear.over(max([*values, *sums], default=0), whole=self.whole)

    def _drawing(self, scale: Scale) -> Markup:
        grid = [empty("path", d=f"M0 {_y(scale, t)}H{WIDTH}", class_="grid") for t in scale.ticks()]
        floor = [0.0] * self._points
        areas = []
        for series in self.stacked:
            top = [low + (v or 0) for low, v in zip(floor, series.values, strict=True)]
            areas.append(empty("path", d=_area(scale, floor, top), class_=f"area {series.colour}"))
            floor = top
        lines = [empty("path", d=_line(scale, s.values), class_=f"line {s.colour}") for s in self.lines]
        title = tag("title", self.title, id=f"{self.ident}-title")
        text = tag("desc", self.text, id=f"{self.ident}-text")
        return tag(
            "svg",
            title,
            text,
            *grid,
            *areas,
            *lines,
            self._slots(),
            viewBox=f"0 0 {WIDTH} {HEIGHT}",
            preserveAspectRatio="none",
            role="img",
            tabindex="0",
            aria_labelledby=f"{self.ident}-title {self.ident}-text",
        )

    def _slots(self) -> Markup:
        """Return what is pointed at: each bucket says its numbers."""
        width = WIDTH / self._points
        rects = (
            tag("rect", tag("title", title), x=_n(i * width), width=_n(width), height=HEIGHT)
            for i, title in enumerate(self._titles())
        )
        return tag("g", *rects, class_="slots")

    def _titles(self) -> list[str]:
        return [
            "\n".join([moment(at), *(f"{s.name}: {_shown(s, i)}" for s in self._series if s.values[i])])
            for i, at in enumerate(self._starts)
        ]

    def _rows(self) -> list[tuple[str, ...]]:
        return [(moment(at), *(_shown(s, i) for s in self._series)) for i, at in enumerate(self._starts)]

    @property
    def _starts(self) -> list[datetime]:
        return self.window.starts()

    @property
    def _points(self) -> int:
        return len(self._starts)

    def _y_axis(self, scale: Scale) -> Markup:
        show = self._series[0].show
        labels = (tag("span", show(t), style=f"bottom:{_n(scale.at(t) * 100)}%") for t in scale.ticks())
        return tag("div", *labels, class_="y", aria_hidden="true")

    def _x_axis(self) -> Markup:
        begin = self._starts[0]
        end = self._starts[-1] + timedelta(seconds=self.window.bucket_s)
        ticks = time_ticks(begin, end)
        labels = (
            tag("span", said, style=f"left:{_n(_part(at, begin, end) * 100)}%", class_="odd" if i % 2 else None)
            for i, (at, said) in enumerate(ticks)
        )
        return tag("div", *labels, class_="x", aria_hidden="true")

    def _mark(self) -> Markup | None:
        """Return the line of a deploy."""
        mark = self.window.mark
        if mark is None or not self.window.is_deploy:
            return None
        begin, end = self._starts[0], self._starts[-1] + timedelta(seconds=self.window.bucket_s)
        place = _part(mark, begin, end)
        side = "left" if place > 0.8 else None  # noqa: PLR2004 - there is no room at its right
        return tag(
            "div",
            tag("div", tag("span", "deploy", class_=side), class_="mark", style=f"left:{_n(place * 100)}%"),
            class_="marks",
        )

    def _legend(self) -> Markup:
        items = (tag("li", tag("i", class_=s.colour), named(s.name)) for s in self._series)
        return tag("ul", *items, class_="legend")


def _shown(series: Series, i: int) -> str:
    value = series.values[i]
    return "\N{EN DASH}" if value is None else series.show(value)


def _part(at: datetime, begin: datetime, end: datetime) -> float:
    return (at - begin) / (end - begin)


def _area(scale: Scale, low: Sequence[float], high: Sequence[float]) -> str:
    """Return a path between two stairs; runs of the same height are one step."""
    if not any(a != b for a, b in zip(low, high, strict=True)):
        return ""
    forth = _stairs(scale, high, reverse=False)
    back = _stairs(scale, low, reverse=True)
    return f"M0 {_y(scale, high[0])}{forth}{back}Z"


def _stairs(scale: Scale, values: Sequence[float], reverse: bool) -> str:
    n = len(values)
    width = WIDTH / n
    path = []
    order = range(n - 1, -1, -1) if reverse else range(n)
    drawn = None if reverse else _y(scale, values[0])
    for i in order:
        height = _y(scale, values[i])
        edge = _n((i + 1) * width if reverse else i * width)
        if height != drawn:
            path.append(f"H{edge}V{height}")
            drawn = height
    path.append("H0" if reverse else f"H{WIDTH}")
    return "".join(path)


def _line(scale: Scale, values: Sequence[float | None]) -> str:
    """Return a path through the middles of the buckets, broken where there is no value; a lonely value is a dash."""
    width = WIDTH / len(values)
    path: list[str] = []
    around = [None, *values, None]
    for i, (value, (before, after)) in enumerate(zip(values, zip(around, around[2:], strict=False), strict=True)):
        if value is None:
            continue
        height = _y(scale, value)
        if before is None and after is None:
            path.append(f"M{_n(i * width)} {height}h{_n(width)}")
        else:
            path.append(f"{'M' if before is None else 'L'}{_n((i + 0.5) * width)} {height}")
    return "".join(path)


def _y(scale: Scale, value: float) -> str:
    return _n(HEIGHT * (1 - scale.at(value)))


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")
