"""`pgrouse cron`: the jobs of pg_cron, which do the maintenance while no daemon is alive."""

from __future__ import annotations

import click

from pgrouse.database.install import pg_cron as jobs
from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession, CommandGroup


@click.group(cls=CommandGroup)
def cron() -> None:
    """Install, check and remove the jobs of pg_cron.

    They do the maintenance while no daemon is alive. Running daemons do the same work.
    """


@cron.command()
@click.pass_obj
def install(session: CliSession) -> int:
    """Schedule or fix the jobs; remove those of databases that are gone."""
    return install_jobs(session)


def install_jobs(session: CliSession) -> int:
    """Install the jobs and say which were changed."""
    with session.connect() as conn:
        changed = jobs.install(conn)
        removed = jobs.remove_left_behind(conn)
    session.record({"scheduled": changed, "removed": removed})
    for name in changed:
        session.say(f"scheduled {name}")
    for name in removed:
        session.say(f"removed {name}, of a database that does not exist")
    session.say("the jobs of pg_cron are up to date")
    return ExitCode.OK


@cron.command()
@click.pass_obj
def check(session: CliSession) -> int:
    """Report what prevents pg_cron from maintaining the queue. Exit code 1 if anything does."""
    with session.connect() as conn:
        findings = jobs.check(conn)
    for finding in findings:
        session.record({"kind": str(finding.kind), "job": finding.job, "problem": finding.text, "fix": finding.fix})
        session.say(str(finding))
    if not findings:
        session.say("ok: pg_cron maintains the queue")
    return ExitCode.FOUND_A_PROBLEM if findings else ExitCode.OK


@cron.command()
@click.pass_obj
def remove(session: CliSession) -> int:
    """Unschedule the jobs."""
    with session.connect() as conn:
        removed = jobs.remove(conn)
    session.record({"removed": removed})
    for name in removed:
        session.say(f"removed {name}")
    if not removed:
        session.say("there are no jobs of pgrouse")
    return ExitCode.OK
