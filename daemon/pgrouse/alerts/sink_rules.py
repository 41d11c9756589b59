"""What a sink wants and when, as messages.deliver_next reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgrouse.config.alerts import Alerts, AlertSink

# More groups than this at once become one message. Alertmanager groups by itself, and takes each as an alert of its own.
DIGEST_OVER = 5
MOST_GROUPS = 10_000
MOST_OF_ALERTMANAGER = 100


def rules(alerts: Alerts, sink: AlertSink) -> dict[str, Any]:
    """Return the rules of one sink: its own, else those of `[alerts]`; times in seconds, what it does not restrict left out."""
    to_alertmanager = sink.type == "alertmanager"
    times = {
        name: own if (own := getattr(sink, name)) is not None else getattr(alerts, name)
        for name in ("wait", "every", "repeat")
    }
    given = {
        "on": sink.on or alerts.on,
        "topics": sink.topics,
        "group_by": alerts.group_by if sink.group_by is None else sink.group_by,
        "after": sink.after and sink.after.total_seconds(),
        "after_count": sink.after_count,
        "per_minute": sink.per_minute,
        "digest_over": 0 if to_alertmanager else DIGEST_OVER,
        "most": MOST_OF_ALERTMANAGER if to_alertmanager else MOST_GROUPS,
        **{name: value.total_seconds() for name, value in times.items()},
    }
    return {name: value for name, value in given.items() if value or name in ("group_by", "digest_over", *times)}
