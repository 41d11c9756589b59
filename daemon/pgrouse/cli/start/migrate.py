"""`pgrouse migrate`: the schema."""

from __future__ import annotations

import click

from pgrouse.cli.background.cron import install_jobs
from pgrouse.cli.policy import difference
from pgrouse.client.apply.schedule_change import schedule_differences
from pgrouse.database.install import schema
from pgrouse.terminal.command import CliSession, Command


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only print what would be applied; it is tried and rolled back.")
@click.option(
    "--cron", "with_cron", is_flag=True, help="Install the jobs of pg_cron too, as `pgrouse cron install` does."
)
@click.option(
    "--apply-policies",
    is_flag=True,
    help="Then write the policies and schedules of the configuration into the database, "
    "even with database.apply_policies = 'never'.",
)
@click.pass_obj
def migrate(session: CliSession, dry_run: bool, with_cron: bool, apply_policies: bool) -> int:
    """Install the schema, or bring it up to date.

    It runs in one transaction, under a lock: several processes may call it at once.
    """
    session.overrides["database"] = {"apply_policies": "migrate" if apply_policies else None}
    applies = session.config.database.apply_policies != "never"
    if applies:
        _ = session.config_with_code  # so that what is wrong there is said before anything is changed
    with session.connect() as conn:
        applied = schema.migrate(conn, dry_run=dry_run)
    _report(session, applied, dry_run)
    if applies:
        _apply_configuration(session, dry_run, is_asked=apply_policies)
    if with_cron and not dry_run:
        return install_jobs(session)
    return 0


def _apply_configuration(session: CliSession, dry_run: bool, *, is_asked: bool) -> None:
    """Apply the policies and schedules. Who has none, and did not ask, need not read of it unless some are gone."""
    settings = session.config_with_code
    with session.connect() as conn:
        if not schema.is_installed(conn):
            if is_asked or settings.policies or settings.schedules:
                session.say("the policies cannot be compared before the schema is installed")
        elif is_asked or settings.policies or settings.schedules or schedule_differences(conn, settings):
            difference.apply_configuration(session, conn, dry_run=dry_run)


def _report(session: CliSession, applied: list[str], dry_run: bool) -> None:
    session.record({"applied": applied, "dry_run": dry_run})
    for name in applied if dry_run else ():
        session.say(f"would apply {name}")
    if not applied:
        session.say(f"the schema `{session.config.database.schema}` is up to date")
    elif not dry_run:
        session.say(f"the schema `{session.config.database.schema}` was brought up to date")
