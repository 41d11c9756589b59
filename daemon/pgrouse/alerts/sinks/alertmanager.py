"""The sink `alertmanager`: each group is an alert of Alertmanager's API v2, resolved when it is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr

from pgrouse.alerts.http_post import http_post
from pgrouse.alerts.notice import DEAD, advice, dashboard_path, excerpt, one_line, summary
from pgrouse.alerts.secret import reveal, reveal_all
from pgrouse.alerts.sink import SinkTable
from pgrouse.config.alerts import HttpUrl, VariableName

if TYPE_CHECKING:
    from pgrouse.alerts.notice import Notice

NAMES = {DEAD: "PgrouseDeadMessages"}
# A condition fires until its end is group_labels. If that never happens (no daemon is left), Alertmanager ends it by
# itself.
FIRES_FOR = timedelta(days=1)
# A group of dead messages has no end of its own: it is resolved when no message died for this long.
QUIET_AFTER = timedelta(minutes=30)


class AlertmanagerTable(SinkTable):
    """An Alertmanager. It groups by itself, and takes each group as an alert of its own."""

    type = "alertmanager"
    digest_over = 0
    max_groups = 100

    alertmanager: HttpUrl
    """The address of an Alertmanager, without /api/v2."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Further headers of the request."""
    labels: dict[VariableName, str] = Field(default_factory=dict)
    """Further labels of each alert."""

    def send(self, notice: Notice, timeout_s: float) -> str:
        """POST the alerts by /api/v2/alerts; return the status of the answer."""
        alerts = [self._alert(notice, group) for group in notice.groups]
        body = json.dumps(alerts, ensure_ascii=False).encode(errors="replace")
        url = reveal(self.alertmanager).rstrip("/") + "/api/v2/alerts"
        return http_post(url, body, {"Content-Type": "application/json", **reveal_all(self.headers)}, timeout_s)

    def _alert(self, notice: Notice, group: Mapping[str, Any]) -> dict[str, Any]:
        group_labels = {
            "kind": group["kind"],
            "topic": group["topic"],
            "result": group["result"],
            "fingerprint": group["fingerprint"],
        }
        name = NAMES.get(group["kind"]) or "Pgrouse" + "".join(map(str.capitalize, group["kind"].split("_")))
        single = notice.content["group_count"] == 1
        queue, to_do = notice.queue, advice(group)
        own = {"severity": group["severity"], **({"environment": queue.environment} if queue.environment else {})}
        link = queue.link(dashboard_path(group))
        runbook = queue.runbook(group["kind"])
        known = {label: value for label, value in group_labels.items() if value}
        return {
            "labels": {**own, **self.labels, "alertname": name, **known},
            "annotations": {
                "summary": notice.title if single else summary(group),
                "description": notice.body if single else excerpt(group["error"]),
                "count": str(group["count"]),
                "total": str(group["total"]),
                **({"fix": one_line(to_do)} if to_do else {}),
                **({"runbook_url": runbook} if runbook else {}),
            },
            **({"generatorURL": link} if link else {}),
            "startsAt": group["first_at"],
            "endsAt": _end(notice, group).isoformat(),
        }


def _end(notice: Notice, group: Mapping[str, Any]) -> datetime:
    last = datetime.fromisoformat(group["last_at"])
    if group["status"] != "firing":
        return last
    # Counted from its creation: an alert that is sent late must still fire.
    return notice.created_at + (QUIET_AFTER if group["kind"] == DEAD else FIRES_FOR)
