"""Topics that are declared in code, with their schedules."""

from __future__ import annotations

from pgrouse import topic


@topic("declared")
def declared(payload):
    return payload


declared.every("@daily")
declared.every("@daily", name="declared-in-tokyo", time_zone="Asia/Tokyo")
