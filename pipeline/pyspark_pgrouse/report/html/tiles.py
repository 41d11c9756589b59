"""The overview: a few large numbers."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import Findings, SloStatus, TopicChange
from pyspark_pgrouse.report.html.formatting import count, duration, hours, rate, share, short
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag
from pyspark_pgrouse.report.html.slo import met_share, verdict, worst
from pyspark_pgrouse.report.html.trend import failure_trend, trend


def tiles(findings: Findings) -> Markup:
    """Return the tiles; tiles with a comparison show how their number changed."""
    whole, change = findings.whole, findings.change
    drawn = [
        _tile("Messages ended", short(whole.ended), f"{rate(whole.ended / findings.window.seconds)} in the mean"),
        _tile("Failure rate", share(whole.failure_rate), f"{count(whole.dead)} dead", _worse(change, "failure_rate")),
        *(_service(each) for each in worst(findings.slo_statuses)[:1]),
        _tile("Total time, p50", duration(whole.total.p50), "from due to ended", _worse(change, "p50")),
        _tile("Total time, p99", duration(whole.total.p99), f"p95 {duration(whole.total.p95)}", _worse(change, "p99")),
        _run_time(findings),
        _held(findings),
        _busiest(findings),
    ]
    return tag("dl", *drawn, class_="tiles")


def _worse(change: TopicChange | None, what: str) -> Markup | None:
    if change is None:
        return None
    before, after = change.before, change.after
    if what == "failure_rate":
        return failure_trend(change)
    return trend(getattr(before.total, what), getattr(after.total, what))


def _tile(name: str, value: Child, note: Child, changed: Markup | None = None) -> Markup:
    return tag(
        "div",
        tag("dt", name),
        tag("dd", value, class_="value"),
        tag("dd", note, " " if changed else None, changed, class_="note"),
    )


def _busiest(findings: Findings) -> Markup:
    name, total = max(findings.topics.items(), key=lambda item: item[1].ended, default=("\N{EN DASH}", None))
    note = f"{share(total.ended / findings.whole.ended)} of all messages" if total and findings.whole.ended else None
    return _tile("Busiest topic", named(name), note)


def _run_time(findings: Findings) -> Markup:
    cost, change = findings.cost, findings.change
    lost = share(cost.failed_run_s / cost.run_s) if cost.run_s else "none"
    changed = trend(change.before.busy, change.after.busy) if change else None
    return _tile("Run time", hours(cost.run_s), f"{lost} in failed attempts", changed)


def _held(findings: Findings) -> Markup:
    busy = findings.busy or (0.0,)
    mean, most = sum(busy) / len(busy), max(busy)
    return _tile("Held at once", short(mean), f"at most {short(most)}, by {count(findings.worker_count)} workers")


def _service(status: SloStatus) -> Markup:
    target = tag("span", f"target {share(status.slo.share)}: ", named(status.slo.goal))
    return _tile("SLO met by", share(met_share(status)), target, verdict(status))
