"""Alerts, delivered by the web server as a daemon delivers them: they are sent also while no daemon runs.

Of all daemons and web servers one at a time delivers to a sink.
"""

from __future__ import annotations

import os
import socket
from secrets import token_hex
from typing import TYPE_CHECKING

from pgrouse.alerts.delivery import delivery_loops
from pgrouse.alerts.sinks import read_sinks
from pgrouse.errors import ConfigError
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.web.background.permission import Permission, PermittedLoop

if TYPE_CHECKING:
    from pgrouse.alerts.sink import SinkTable
    from pgrouse.client.connection.database import Database
    from pgrouse.config.config import Config
    from pgrouse.process.loop import Loop

FUNCTIONS = ("claim_delivery", "settle_delivery", "alerting_problem")


def web_delivery_loops(db: Database, settings: Config) -> list[Loop]:
    """Return the loops that deliver to the sinks which work on this machine; none if there is no such sink.

    Raises:
        ConfigProblems: everything that is wrong with the tables of the sinks.
    """
    usable = [sink for sink in read_sinks(settings) if _works_here(sink)]
    if not usable:
        return []
    holder = f"web:{socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
    alerts = settings.alerts.model_copy(update={"to": usable})
    permission = Permission(db, "alerts", FUNCTIONS)
    found = delivery_loops(db, settings.model_copy(update={"alerts": alerts}), holder)
    return [PermittedLoop(each, permission) for each in found]


def _works_here(sink: SinkTable) -> bool:
    """Return whether a sink can work here. One that lacks a package or a program is left to the daemons."""
    try:
        sink.check()
    except ConfigError as error:
        log.warning(events.ALERT_SINK_UNUSABLE, sink=sink.name, reason=str(error))
        return False
    return True
