"""The first look: a few large numbers."""

from __future__ import annotations

import math

from pyspark_pgrouse.report.findings import Findings, SloStatus, TopicChange
from pyspark_pgrouse.report.html.formatting import count, duration, rate, share, short, times
from pyspark_pgrouse.report.html.markup import Child, Markup, named, tag

NOTICEABLE = 0.1  # a change by less is not called better or worse
SURE = 3.0  # standard errors
SAME = tag("span", "\N{ALMOST EQUAL TO} same", class_="same")


def tiles(findings: Findings) -> Markup:
    """Return the tiles; what is compared says how it changed."""
    whole, change = findings.whole, findings.change
    drawn = [
        _tile("Messages ended", short(whole.ended), f"{rate(whole.ended / findings.window.seconds)} in the mean"),
        _tile("Failure rate", share(whole.failure_rate), f"{count(whole.dead)} dead", _worse(change, "failure_rate")),
        _tile("Total time, p50", duration(whole.total.p50), "from due to ended", _worse(change, "p50")),
        _tile("Total time, p99", duration(whole.total.p99), f"p95 {duration(whole.total.p95)}", _worse(change, "p99")),
        _busiest(findings),
        _held(findings),
        *(_service(each) for each in worst(findings.slo_statuses)[:1]),
    ]
    return tag("dl", *drawn, class_="tiles")


def worst(slo_statuses: tuple[SloStatus, ...]) -> list[SloStatus]:
    """Return the SLOs, the one whose budget burned fastest over the whole window first."""
    return sorted(slo_statuses, key=lambda s: -(s.burn_rates[-1].burn_rate or 0.0) if s.burn_rates else 0.0)


def trend(before: float | None, after: float | None) -> Markup | None:
    """Say by how much something that should be low has changed; the sign says it too, not the colour alone."""
    if before is None or after is None or before == after == 0:
        return None
    if not before:
        return tag("span", "\N{BLACK UP-POINTING TRIANGLE} from 0", class_="worse")
    part = after / before - 1
    if abs(part) < NOTICEABLE:
        return SAME
    sign = "\N{BLACK UP-POINTING TRIANGLE}" if part > 0 else "\N{BLACK DOWN-POINTING TRIANGLE}"
    said = times(after / before) if part > 1 else f"{abs(part):.0%}"
    return tag("span", f"{sign} {said}", class_="worse" if part > 0 else "better")


def failure_trend(change: TopicChange) -> Markup | None:
    """Say by how much the failure rate has changed, unless that may well be chance: less than three standard errors."""
    before, after = change.before, change.after
    counted = before.ended + after.ended
    rate = (before.dead + after.dead) / counted if counted else 0.0
    if not rate or not before.ended or not after.ended:
        return trend(before.failure_rate, after.failure_rate)
    error = math.sqrt(rate * (1 - rate) * (1 / before.ended + 1 / after.ended))
    if abs(before.dead / before.ended - after.dead / after.ended) < SURE * error:
        return SAME
    return trend(before.failure_rate, after.failure_rate)


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


def _held(findings: Findings) -> Markup:
    busy = findings.busy or (0.0,)
    mean, most = sum(busy) / len(busy), max(busy)
    return _tile("Held at once", short(mean), f"at most {short(most)}, by {count(findings.worker_count)} workers")


def _service(status: SloStatus) -> Markup:
    last = status.burn_rates[-1]
    met = last.good / last.ended if last.ended else None
    wanted = tag("span", f"wanted {share(status.slo.share)}, ", named(status.slo.name))
    is_met = met is None or met >= status.slo.share
    return _tile("SLO met by", share(met), wanted, None if is_met else tag("span", "not met", class_="worse"))
