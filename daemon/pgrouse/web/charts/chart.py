"""Charts: rows of a time series become what the script in the browser draws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pgrouse.web.access.database_pool import Row

# Digits of a number in a chart: more cannot be seen.
DIGITS = 4
QUANTILES = ("p50", "p95", "p99")


@dataclass(frozen=True)
class ChartLine:
    """One line.

    Attributes:
        name: what the legend calls it.
        column: where its values are.
        colour: 1 to 5: `--series-N` of app.css.
    """

    name: str
    column: str
    colour: int


def chart(
    rows: Sequence[Row], series: Sequence[ChartLine], unit: str, *, per_s: bool = False, enough_s: float = 0
) -> dict[str, Any]:
    """Return the data of a chart.

    Args:
        rows: with `at`, and `s`: how many seconds of the bar have passed.
        series: the lines. The first one is always there, others if they have any value but 0.
        unit: "s" for seconds; "" for a number.
        per_s: divide by `s`.
        enough_s: leave out a last bar of which fewer seconds have passed.
    """
    shown = [row for row in rows if row["s"] >= enough_s]
    present = [each for n, each in enumerate(series) if n == 0 or any(row[each.column] for row in shown)]
    return {
        "unit": unit,
        "series": [{"name": each.name, "colour": each.colour} for each in present],
        "x": [round(row["at"].timestamp()) for row in shown],
        "y": [[_rounded(row[each.column], row["s"] if per_s else 1) for row in shown] for each in present],
    }


def latency_chart(rows: Sequence[Row], series: Sequence[ChartLine]) -> dict[str, Any]:
    """Return the data of a chart of times; the browser draws one of its quantiles.

    Args:
        rows: with `at` and `s`; the seconds of a line with the column `run` are in `run_p50_s`, `run_p95_s` and
            `run_p99_s`.
        series: the lines. The first one is always there, others if they have any value.
    """
    of_each = {
        name: chart(rows, [replace(each, column=f"{each.column}_{name}_s") for each in series], "s")
        for name in QUANTILES
    }
    shared = {name: of_each["p95"][name] for name in ("unit", "series", "x")}
    return shared | {"quantiles": {name: each["y"] for name, each in of_each.items()}}


def _rounded(value: float | None, over: float) -> float | None:
    return None if value is None or not over else float(f"{value / over:.{DIGITS}g}")


# The box that a small line is drawn in.
WIDTH, HEIGHT = 120, 26


def spark(values: Sequence[float]) -> str:
    """Return the path of a small line, as SVG writes it."""
    most = max(values) or 1
    width = WIDTH / max(1, len(values) - 1)
    places = (f"{n * width:.1f} {HEIGHT - 1 - value / most * (HEIGHT - 2):.1f}" for n, value in enumerate(values))
    return "M" + "L".join(places)
