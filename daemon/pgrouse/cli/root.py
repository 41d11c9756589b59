"""The command `pgrouse` itself: global options, and the list of commands."""

from __future__ import annotations

import os

import click

from pgrouse.terminal.lazy_group import SESSION, LazyGroup, load

SECTIONS = {
    "Start": {
        "demo": ("pgrouse.cli.demo.command:demo", "See pgrouse work on real files, with its own database."),
        "init": ("pgrouse.cli.start.init:init", "Write a pgrouse.toml and a handlers.py to start from."),
        "migrate": ("pgrouse.cli.start.migrate:migrate", "Install the schema, or bring it up to date."),
        "config": ("pgrouse.cli.start.config:config", "Check and show the configuration."),
        "completion": ("pgrouse.cli.start.completion:completion", "Print the completion script of a shell."),
    },
    "Run": {
        "run": ("pgrouse.cli.background.run:run", "Run the daemon: process messages until it is stopped."),
        "web": ("pgrouse.cli.background.web:web", "Serve the HTTP API and the dashboard until stopped."),
        "cron": ("pgrouse.cli.background.cron:cron", "Install, check and remove the jobs of pg_cron."),
        "maintenance": ("pgrouse.cli.background.maintenance:maintenance", "Run the maintenance by hand."),
        "pipeline": (
            "pgrouse.cli.background.pipeline:pipeline",
            "Run the data pipeline over the archive: on Spark, the report with DuckDB.",
        ),
    },
    "Messages": {
        "publish": ("pgrouse.cli.queue.publish:publish", "Publish a message and print its id."),
        "message": (
            "pgrouse.cli.queue.message:message",
            "List, show, edit, signal, retry, cancel, skip and unblock messages.",
        ),
        "explain": ("pgrouse.cli.queue.explain:explain", "Explain why a message is not running, or how it ended."),
        "dead": ("pgrouse.cli.queue.dead:dead", "List, group and show dead messages, requeue dead letters."),
        "redrive": ("pgrouse.cli.queue.redrive:redrive", "Put dead messages back."),
        "replay": ("pgrouse.cli.queue.replay:replay", "Publish again the messages that succeeded in a time."),
        "batch": ("pgrouse.cli.queue.batch:batch", "Create, close, list, cancel and redrive batches."),
        "workflow": ("pgrouse.cli.queue.workflow:workflow", "List, show, cancel and redrive workflows."),
        "archive": ("pgrouse.cli.queue.archive:archive", "Delete old messages from the archive."),
    },
    "Topics": {
        "topic": ("pgrouse.cli.policy.topic:topic", "Show, set and pause the policies of topics."),
        "subscription": (
            "pgrouse.cli.policy.subscription:subscription",
            "Copy messages that are published to a topic to others.",
        ),
        "schedule": ("pgrouse.cli.policy.schedule:schedule", "Publish messages on a schedule."),
    },
    "Operate": {
        "stats": ("pgrouse.cli.operate.stats:stats", "Show how many messages are in the queue, by topic."),
        "top": ("pgrouse.cli.operate.top:top", "Watch topics, workers and dead messages live, and act on them."),
        "worker": ("pgrouse.cli.operate.worker:worker", "List the workers, scale and drain them."),
        "doctor": ("pgrouse.cli.operate.doctor:doctor", "Find problems that cause no error, and how to fix them."),
        "health": ("pgrouse.cli.operate.health:health", "Check the database, the schema and the worker of this host."),
        "alert": ("pgrouse.cli.operate.alert:alert", "Deliver alerts, list them, silence known ones."),
        "audit": ("pgrouse.cli.operate.audit:audit", "List the actions of operators, the latest first."),
        "token": ("pgrouse.cli.operate.token:token", "Create, list and revoke the tokens of the web server."),
        "crypto": ("pgrouse.cli.operate.crypto:crypto", "Make keys, see which are needed, rotate them."),
    },
}
COMMANDS = {name: command for section in SECTIONS.values() for name, command in section.items()}


def _version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted and not ctx.resilient_parsing:
        click.echo(f"pgrouse {load('importlib.metadata:version')('pgrouse')}")
        ctx.exit()


@click.command(
    cls=LazyGroup,
    lazy=COMMANDS,
    sections=SECTIONS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Exit codes: 0 ok, 1 found a problem, 2 usage, 69 database unreachable, 75 try again, 78 bad configuration, "
    "130 interrupted.",
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_version, help="Print the version and exit."
)
@click.pass_context
def root(ctx: click.Context) -> None:
    """A message queue and worker daemon in PostgreSQL.

    The database is the one that pgrouse.toml names, or PGROUSE_DSN, or DATABASE_URL, or libpq's own variables (PGHOST,
    PGSERVICE, ...).
    """
    ctx.ensure_object(load(SESSION))
    if os.environ.get("NO_COLOR"):
        ctx.color = False
