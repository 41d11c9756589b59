"""By how much a number has changed, with a sign: the colour alone says nothing to some readers."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import NOTICEABLE, TopicChange, is_failure_rate_changed
from pyspark_pgrouse.report.html.formatting import times
from pyspark_pgrouse.report.html.markup import Markup, tag

SAME = tag("span", "\N{ALMOST EQUAL TO} same", class_="same")


def trend(before: float | None, after: float | None) -> Markup | None:
    """Say by how much something that should be low has changed."""
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
    """Say by how much the failure rate has changed, unless that may well be chance."""
    before, after = change.before, change.after
    if before.dead + after.dead and before.ended and after.ended and not is_failure_rate_changed(before, after):
        return SAME
    return trend(before.failure_rate, after.failure_rate)
