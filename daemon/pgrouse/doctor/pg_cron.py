"""Whether pg_cron does the maintenance while no daemon is alive: what `pgrouse cron check` says."""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.install import pg_cron as cron
from pgrouse.install.pg_cron import Kind
from pgrouse.doctor.finding import Finding, Level, ok
from pgrouse.doctor.target import Subject

# An optional step that was not taken, or that cannot be seen from here. All others were meant to work and do not.
NOT_TAKEN = {Kind.ABSENT, Kind.NOT_VISIBLE, Kind.MISSING}


def look(subject: Subject) -> Iterator[Finding]:
    """Say what keeps pg_cron from it; of several jobs with the same trouble at once."""
    with subject.reading() as conn:
        found = cron.check(conn)
    for kind in dict.fromkeys(each.kind for each in found):
        same = [each for each in found if each.kind is kind]
        level = Level.WARN if kind in NOT_TAKEN else Level.FAIL
        yield Finding("pg_cron", level, "; ".join(each.text for each in same), same[0].mend, detail=str(kind))
    if not found:
        yield ok("pg_cron", "does the maintenance while no daemon is alive")
