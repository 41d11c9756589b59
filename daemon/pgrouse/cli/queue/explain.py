"""`pgrouse explain`: why a message is not running."""

from __future__ import annotations

import click

from pgrouse.cli.queue.message import style_of_state
from pgrouse.client.call import run
from pgrouse.client.calls.monitoring import explain as explain_calls
from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.param_types import MESSAGE_ID
from pgrouse.terminal.table import Column

ABSENT = ("gone", "never_published")
FINE = {
    "ready": "green",
    "running": "cyan",
    "prefetched": "cyan",
    "success": "green",
    "fanned_out": "green",
    "cancelled": "dim",
}


@click.command(cls=Command)
@click.argument("message_id", type=MESSAGE_ID, metavar="ID")
@click.pass_obj
def explain(session: CliSession, message_id: int) -> int:
    """Explain why a message is not running, or how it ended.

    The most decisive reason comes first. Exit code 1 if there is no such message.
    """
    with session.read() as conn:
        found = run(conn, explain_calls.explain(message_id))
    reasons = [{"code": each.code, "reason": each.reason, "detail": each.detail} for each in found]
    if session.as_json:
        session.record({"id": message_id, "reasons": reasons})
    else:
        columns = [Column("WHY", "code", style=_style), Column("", "reason", wide=True, folds=True)]
        session.rows(columns, reasons, "")
    return ExitCode.FOUND_A_PROBLEM if found[-1].code in ABSENT else ExitCode.OK


def _style(code: str) -> str:
    return FINE.get(code) or style_of_state(code) or "yellow"
