"""The rules of a sink: which alerts it gets and when, as messages.claim_delivery reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgrouse.alerts.sink import SinkTable
    from pgrouse.config.alerts import AlertsSettings


def sink_rules(alerts: AlertsSettings, sink: SinkTable) -> dict[str, Any]:
    """Return the rules of one sink: its own, else those of `[alerts]`.

    Times are in seconds. Rules that are not set are left out.
    """
    times = {
        name: own if (own := getattr(sink, name)) is not None else getattr(alerts, name)
        for name in ("group_wait", "group_interval", "repeat_interval")
    }
    given = {
        "kinds": sink.kinds or alerts.kinds,
        "topics": sink.topics,
        "group_by": alerts.group_by if sink.group_by is None else sink.group_by,
        "escalate_after": sink.escalate_after and sink.escalate_after.total_seconds(),
        "escalate_count": sink.escalate_count,
        "rate_limit_per_minute": sink.rate_limit_per_minute,
        "digest_over": sink.digest_over,
        "most": sink.max_groups,
        **{name: value.total_seconds() for name, value in times.items()},
    }
    return {name: value for name, value in given.items() if value or name in ("group_by", "digest_over", *times)}
