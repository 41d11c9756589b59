"""`pgrouse migrate`: the schema."""

from __future__ import annotations

import click

from pgrouse.cli import policy_diff
from pgrouse.cli.command import CliSession, Command
from pgrouse.cli.cron import install_jobs
from pgrouse.install import schema


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only print what would be applied; it is tried and rolled back.")
@click.option(
    "--cron", "with_cron", is_flag=True, help="Install the jobs of pg_cron too, as `pgrouse cron install` does."
)
@click.option("--apply-policies", is_flag=True, help="Then write the policies of the file into the database.")
@click.pass_obj
def migrate(session: CliSession, dry_run: bool, with_cron: bool, apply_policies: bool) -> int:
    """Install the schema, or bring it up to date.

    It runs in one transaction, under a lock: several processes may call it at once.
    """
    session.overrides["database"] = {"apply_policies": "migrate" if apply_policies else None}
    with session.connect() as conn:
        applied = schema.migrate(conn, dry_run=dry_run)
    _report(session, applied, dry_run)
    if session.config.database.apply_policies != "never" and (apply_policies or session.config.policies):
        _apply_policies(session, dry_run)
    if with_cron and not dry_run:
        return install_jobs(session)
    return 0


def _apply_policies(session: CliSession, dry_run: bool) -> None:
    with session.connect() as conn:
        if conn.execute("SELECT to_regclass('messages.topic')").fetchone() == (None,):
            session.output.say("the policies cannot be compared before the schema is installed")
        else:
            policy_diff.apply_policies(session, conn, session.config.policies, dry_run=dry_run)


def _report(session: CliSession, applied: list[str], dry_run: bool) -> None:
    if session.as_json:
        session.output.record({"applied": applied, "dry_run": dry_run})
    for name in applied if dry_run else ():
        session.output.say(f"would apply {name}")
    if not applied:
        session.output.say("the schema `messages` is up to date")
    elif not dry_run:
        session.output.say("the schema `messages` was brought up to date")
