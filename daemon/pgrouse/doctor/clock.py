"""Whether the clock here is that of the server. Only the server's counts for the queue; but people compare logs."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pgrouse.doctor.finding import Finding, ok, warn
from pgrouse.doctor.target import Subject

MUCH_S = 2.0
SERVER = b"SELECT extract(epoch FROM clock_timestamp())::float8"


def look(subject: Subject) -> Iterator[Finding]:
    """Say how far the two are apart, as far as the way there and back lets one know."""
    before = time.time()
    with subject.reading() as conn:
        asked = time.time()
        row = conn.execute(SERVER).fetchone()
        answered = time.time()
    ahead = (asked + answered) / 2 - float(row[0] if row else before)
    if abs(ahead) > MUCH_S + (answered - asked) / 2:
        direction = "ahead of" if ahead > 0 else "behind"
        yield warn(
            "clock",
            f"the clock here is {abs(ahead):.1f} s {direction} the server's: times in the logs of both do not fit together",
            "let both follow the same time servers (chrony, systemd-timesyncd)",
        )
    else:
        yield ok("clock", f"{abs(ahead):.1f} s from the server's")
