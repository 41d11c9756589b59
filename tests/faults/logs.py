"""What the server and the daemons logged, without what the storm itself caused.

The storm ends connections, and daemons and the server report that: such an error is expected while a fault that touches
connections is in progress, and for as long afterwards as it takes to be noticed. The two attackers are refused what
they try. Any other error is a defect.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.faults.intruders import HOSTILE, VISITOR

Entry = dict[str, Any]

# The log of the server as JSON, in one file: the file of pg_ctl begins again at each restart.
LOGGING = {
    "logging_collector": "on",
    "log_destination": "jsonlog",
    "log_directory": "log",
    "log_filename": "server.log",
    "log_timezone": "UTC",
}
FILE = Path("log") / "server.json"
SEVERE = {"ERROR", "FATAL", "PANIC"}
# A task of a tick that fails is rolled back alone, and reported as a warning.
FAILED_TASK = "tick: "

# How long after a fault its effect may be noticed: a turn waits 30 s for a dead connection, on a machine that is busy.
NOTICED_WITHIN_S = 90.0
# What the server says to a session that was terminated, was refused, or is gone, or whose COPY was cut within a line;
# or that did not log in in time; and to one whose client gave up, or vanished during a COPY.
TO_THE_CUT = {"57P01", "57P02", "57P03", "57014", "08006", "08P01"}
GAVE_UP = {"57014", "08006"}
# The errors of each attacker: SQLSTATEs, or their classes.
REFUSED = {
    VISITOR: ("42501", "42883", "55P03"),
    HOSTILE: ("22", "23", "54", "P0001"),
}

# What a daemon says when a connection was cut, refused, terminated or silent.
CUT = re.compile(
    r"server closed the connection unexpectedly|terminating connection due to|the database system is |the "
    r"connection is (lost|closed)"
    r"|Connection re(set|fused)|connection timeout expired|couldn't get a connection "
    r"after|TimeoutError|canceling statement due to user request"
    r"|canceling authentication due to timeout|an error response during SSL exchange"
)
# Events that say that something of the daemon failed, which only a lost connection explains.
OF_CONNECTIONS = {
    "loop.failed",
    "heartbeat.failed",
    "registry.update_failed",
    "metrics.report_failed",
    "attempt.failed",
}
# How handlers of the storm fail; one whose lock was lost may do no step and no work in a transaction.
OF_HANDLERS = re.compile(
    r"ZeroDivisionError: |the shop is closed|the handler's process died|LockLost: "
    r"message \d+ is not this worker's any more"
)
# A fault left the transaction of a handler open on the server, which has not noticed that its client is gone.
LEFT_OPEN = "message.completion_open"
NEVER_LOGGED = {"loop.crashed", "settle.refused", "settle.failed", "tick.failed", "plain"}


@dataclass
class Disturbances:
    """When faults touched connections: (from, to), by the wall clock."""

    times: list[tuple[float, float]] = field(default_factory=list)

    def explain(self, at: float) -> bool:
        """Whether a connection that failed at that time may have failed because of one of them."""
        return any(began <= at <= ended + NOTICED_WITHIN_S for began, ended in self.times)


def of_server(data: Path, database: str, disturbed: Disturbances) -> list[str]:
    """Return the errors in the log of a server, by its data directory, that the storm did not cause."""
    return [
        f"the server logged {_shown(entry)}"
        for entry in _entries((data / FILE).read_text(errors="replace"))
        if entry.get("dbname") == database and _is_failure(entry) and not is_expected_of_server(entry, disturbed)
    ]


def is_expected_of_server(entry: Entry, disturbed: Disturbances) -> bool:
    """Whether the storm caused this entry of the server's log."""
    state, user = entry.get("state_code", ""), entry.get("user", "")
    if entry["error_severity"] == "ERROR" and state.startswith(REFUSED.get(user, ("none",))):
        return True
    is_of_connection = state in TO_THE_CUT if entry["error_severity"] == "FATAL" else state in GAVE_UP
    return is_of_connection and disturbed.explain(_server_time(entry))


def of_daemon(logged: Iterable[Entry], disturbed: Disturbances) -> list[Entry]:
    """Return the entries in the log of a daemon that report a failure that the storm did not cause."""
    return [entry for entry in logged if not is_expected_of_daemon(entry, disturbed)]


def is_expected_of_daemon(entry: Entry, disturbed: Disturbances) -> bool:
    """Whether this entry of a daemon's log reports no failure, or one that the storm caused."""
    at = datetime.fromisoformat(entry["timestamp"]).timestamp()
    if entry["event"] == LEFT_OPEN:
        return disturbed.explain(at)
    if entry["event"] in NEVER_LOGGED or entry.get("level") in ("error", "critical"):
        return False
    if entry["event"] not in OF_CONNECTIONS:
        return True
    if entry["event"] == "attempt.failed" and OF_HANDLERS.search(entry["reason"]):
        return True
    return CUT.search(entry["reason"]) is not None and disturbed.explain(at)


def _entries(text: str) -> Iterator[Entry]:
    """Return the entries of a log; a server that is killed leaves half a line."""
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue


def _is_failure(entry: Entry) -> bool:
    return entry["error_severity"] in SEVERE or entry.get("message", "").startswith(FAILED_TASK)


def _server_time(entry: Entry) -> float:
    return datetime.strptime(entry["timestamp"], "%Y-%m-%d %H:%M:%S.%f UTC").replace(tzinfo=UTC).timestamp()


def _shown(entry: Entry) -> str:
    wanted = (
        "timestamp",
        "user",
        "application_name",
        "error_severity",
        "state_code",
        "message",
        "detail",
        "context",
        "statement",
    )
    return str({key: str(entry[key])[:500] for key in wanted if key in entry})
