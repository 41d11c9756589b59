"""The change of a number, with a sign: some readers cannot use the colour alone."""

from __future__ import annotations

from pyspark_pgrouse.report.findings import NOTICEABLE, TopicChange, is_failure_rate_changed
from pyspark_pgrouse.report.html.formatting import times
from pyspark_pgrouse.report.html.markup import Markup, tag

SAME = tag("span", "\N{ALMOST EQUAL TO} same", class_="same")


def trend(before: float | None, after: float | None) -> Markup | None:
    """Return the change of a number that should be low."""
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
    """Return the change of the failure rate, unless it may be chance."""
    before, after = change.before, change.after
    if before.dead + after.dead and before.ended and after.ended and not is_failure_rate_changed(before, after):
        return SAME
    return trend(before.failure_rate, after.failure_rate)
