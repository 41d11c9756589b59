"""`pgrouse migrate`: the schema."""

from __future__ import annotations

import click

from pgrouse.cli.command import Command, Session


@click.command(cls=Command)
@click.option("--dry-run", is_flag=True, help="Only say what would be applied; all of it is tried and rolled back.")
@click.option(
    "--cron", "with_cron", is_flag=True, help="Install the jobs of pg_cron too, as `pgrouse cron install` does."
)
@click.option("--apply-topics", is_flag=True, help="Then write the policies that the file names into the database.")
@click.pass_obj
def migrate(session: Session, dry_run: bool, with_cron: bool, apply_topics: bool) -> int:
    """Install the schema, or bring it up to date.

    It happens in one transaction, under a lock: any number may call this at once.
    """
    from pgrouse.install import schema  # noqa: PLC0415

    session.overrides["database"] = {"apply_topics": "migrate" if apply_topics else None}
    with session.connect() as conn:
        applied = schema.migrate(conn, dry_run=dry_run)
    _report(session, applied, dry_run)
    if session.config.database.apply_topics != "never" and (apply_topics or session.config.policies):
        _apply_topics(session, dry_run)
    if with_cron and not dry_run:
        from pgrouse.cli.cron import install_jobs  # noqa: PLC0415

        return install_jobs(session)
    return 0


def _apply_topics(session: Session, dry_run: bool) -> None:
    from pgrouse.cli.policy_diff import put  # noqa: PLC0415

    with session.connect() as conn:
        if conn.execute("SELECT to_regclass('messages.topic')").fetchone() == (None,):
            session.output.say("the policies cannot be compared before the schema is there")
        else:
            put(session, conn, session.config.policies, dry_run=dry_run)


def _report(session: Session, applied: list[str], dry_run: bool) -> None:
    if session.as_json:
        session.output.record({"applied": applied, "dry_run": dry_run})
    for name in applied if dry_run else ():
        session.output.say(f"would apply {name}")
    if not applied:
        session.output.say("the schema `messages` is up to date")
    elif not dry_run:
        session.output.say(f"the schema `messages` is up to date: {len(applied)} files applied")
