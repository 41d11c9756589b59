"""Checks whether pg_cron does the maintenance while no daemon is alive: the result of `pgrouse cron check`."""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.database.install import pg_cron as cron
from pgrouse.database.install.pg_cron import CronFindingKind
from pgrouse.doctor.finding import Finding, Level, ok
from pgrouse.doctor.target import DoctorTarget

# pg_cron is optional; here it is not installed, or not visible. All other findings are failures.
NOT_TAKEN = {CronFindingKind.ABSENT, CronFindingKind.NOT_VISIBLE, CronFindingKind.MISSING}


def check(target: DoctorTarget) -> Iterator[Finding]:
    """Report what prevents it; one finding for all jobs with the same problem."""
    with target.reading() as conn:
        found = cron.check(conn)
    for kind in dict.fromkeys(each.kind for each in found):
        same = [each for each in found if each.kind is kind]
        level = Level.WARN if kind in NOT_TAKEN else Level.FAIL
        yield Finding("pg_cron", level, "; ".join(each.text for each in same), same[0].fix, detail=str(kind))
    if not found:
        yield ok("pg_cron", "does the maintenance while no daemon is alive")
