"""The whole page: one file that loads nothing, for browsers with and without scripts. Templates show the findings."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from datetime import datetime, timedelta
from importlib.resources import files
from typing import TypeVar

from jinja2 import Environment, FunctionLoader, StrictUndefined

from pgrouse.values.error_line import error_line
from pyspark_pgrouse.report.findings import MOST_ATTEMPTS, Findings
from pyspark_pgrouse.report.html import formatting
from pyspark_pgrouse.report.html.chart import DURATIONS, Chart, Series
from pyspark_pgrouse.report.html.svg import sparkline
from pyspark_pgrouse.report.window import WEEK, Window

T = TypeVar("T")
FORMATS = {
    name: getattr(formatting, name) for name in ("count", "short", "duration", "share", "hours", "times", "moment")
}


def page(findings: Findings) -> str:
    """Return the page as HTML.

    It runs only its own script and loads nothing: its content security policy forbids both.
    """
    script = _file("tips.js")
    template = _environment(findings["window"]).get_template("page.html")
    return template.render(
        findings,
        week_names=[_week_name(week) for week in findings["weeks"]],
        style=_file("style.css"),
        script=script,
        policy=_policy(script),
        charts=_charts(findings),
    )


def _environment(window: Window) -> Environment:
    environment = Environment(
        loader=FunctionLoader(lambda name: _file(f"templates/{name}")),
        autoescape=True,
        finalize=formatting.fit,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= FORMATS | {"error_line": error_line, "named": formatting.named, "width": formatting.width}
    environment.globals |= {
        "formats": FORMATS,
        "before": _before(window),
        "rates": formatting.rates,
        "trend": formatting.trend,
        "sparkline": sparkline,
        "series": lambda line, nothing=None: _values(window, line, nothing),
        "MOST_ATTEMPTS": MOST_ATTEMPTS,
        "SAME": formatting.SAME,
    }
    return environment


def _week_name(week: datetime) -> str:
    last = week + WEEK - timedelta(microseconds=1)
    return f"{last.day}{formatting.GAP}{last:%b}"


def _before(window: Window) -> str:
    """Return the name of the time before the mark, as the end of a sentence: `before the deploy`."""
    return (
        "before the deploy" if window.is_deploy else f"in the {formatting.duration(window.before_s)} before this window"
    )


def _values(window: Window, line: Mapping[int, T] | None, nothing: T) -> list[T]:
    """Return one value per bucket of the window."""
    return [(line or {}).get(int(at.timestamp()), nothing) for at in window.starts()]


def _charts(findings: Findings) -> dict[str, Chart]:
    window: Window = findings["window"]
    latency = [
        Series(name, f"o{i}", _values(window, findings["latency"].get(name), None), formatting.duration)
        for i, name in enumerate(("p50", "p95", "p99"), 1)
    ]
    busy, workers = (_values(window, findings["held"].get(name), 0.0) for name in ("busy", "workers"))
    return {
        "throughput": _throughput(findings, window),
        "latency": Chart(
            "Total time of all messages (log scale)",
            "Lines of the percentiles 50, 95 and 99 of the total time, on a logarithmic axis.",
            window,
            lines=latency[::-1],
            labels=DURATIONS,
            log=True,
        ),
        "deaths": Chart(
            f"Dead messages per {formatting.duration(window.bucket_s)}, by result",
            "Stacked areas of the results that are neither success nor cancelled.",
            window,
            stacked=[
                Series(result, f"d{i}", _values(window, findings["deaths"][result], 0), formatting.short)
                for i, result in enumerate(("failed", "rejected", "lock_expired", "expired"), 1)
                if any(findings["deaths"].get(result, {}).values())
            ],
            whole=True,
        ),
        "capacity": Chart(
            "Messages worked on at once, and workers",
            "An area of the messages that workers held at once, and a line of how many workers held any.",
            window,
            stacked=[Series("messages held", "c1", busy, formatting.short)],
            lines=[Series("workers", "ink", workers, formatting.short)],
        ),
    }


def _throughput(findings: Findings, window: Window) -> Chart:
    lines: Mapping[str | None, Mapping[int, int]] = findings["throughput"]
    named = [(row["topic"], lines[row["topic"]]) for row in findings["topics"] if row["topic"] in lines]
    if None in lines:
        left = findings["topics"][0]["of"] - len(named)
        named.append((f"{left:,} other topics" if left > 1 else "other", lines[None]))
    counts = [_values(window, line, 0) for _, line in named]
    most = max(map(sum, zip(*counts, strict=True)), default=0)
    unit, times = formatting.rate_unit(most / window.bucket_s)
    return Chart(
        f"Messages ended per {unit}, by topic",
        f"Stacked areas of {len(named)} topics, one step every {formatting.duration(window.bucket_s)}.",
        window,
        stacked=[
            Series(name, f"c{(i + 1) % 8}", [n / window.bucket_s * times for n in values], formatting.short)
            for i, ((name, _), values) in enumerate(zip(named, counts, strict=True))
        ],
    )


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'; "
        "form-action 'none'"
    )


def _file(name: str) -> str:
    return files("pyspark_pgrouse.report.html").joinpath(name).read_text(encoding="utf-8")
