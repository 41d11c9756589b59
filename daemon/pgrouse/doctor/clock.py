"""Checks whether the clock here agrees with the server's. The queue uses only the server's, but people compare logs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pgrouse.doctor.finding import Finding, ok, warn
from pgrouse.doctor.target import DoctorTarget

MAX_DIFFERENCE_S = 2.0
SERVER_TIME = b"SELECT extract(epoch FROM clock_timestamp())::float8"


def check(target: DoctorTarget) -> Iterator[Finding]:
    """Report the difference between the clocks, as exactly as the round trip allows."""
    before = time.time()
    with target.reading() as conn:
        asked = time.time()
        row = conn.execute(SERVER_TIME).fetchone()
        answered = time.time()
    ahead = (asked + answered) / 2 - float(row[0] if row else before)
    if abs(ahead) > MAX_DIFFERENCE_S + (answered - asked) / 2:
        direction = "ahead of" if ahead > 0 else "behind"
        yield warn(
            "clock",
            f"the clock here is {abs(ahead):.1f} s {direction} the server's: times in the logs of both do not match",
            "use the same time servers for both (chrony, systemd-timesyncd)",
        )
    else:
        yield ok("clock", f"{abs(ahead):.1f} s from the server's")
