"""`pgrouse pipeline erase`: removes the rows of some keys or ids from a lake."""

from __future__ import annotations

from datetime import timedelta

import click

from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession, Command
from pgrouse.terminal.param_types import DURATION
from pgrouse.values.format import plural
from pyspark_pgrouse.lake import maintenance
from pyspark_pgrouse.lake.lake import Lake


@click.command(cls=Command)
@click.argument("lake")
@click.option("--key", "keys", multiple=True, help="Erase the messages with this key. May be given more than once.")
@click.option(
    "--id",
    "ids",
    metavar="ID",
    type=click.IntRange(0),
    multiple=True,
    help="Erase this message. May be given more than once.",
)
@click.option(
    "--vacuum",
    type=DURATION,
    help="Afterwards, remove files that the table has not used for this long. 0s removes the erased rows at once; "
    "programs that still read "
    "those files fail.",
)
@click.pass_obj
def erase(session: CliSession, lake: str, keys: tuple[str, ...], ids: tuple[int, ...], vacuum: timedelta | None) -> int:
    """Erase rows from LAKE, as a law or a customer asks for it.

    Files with such rows are written again without them. The old files stay until a vacuum removes them. Rows that are
    still in the archive and were not exported come with the next export.
    """
    if not keys and not ids:
        raise click.UsageError("say what to erase: --key KEY or --id ID")
    opened = Lake.open(lake)
    erased = maintenance.erase(opened, ids, keys)
    if vacuum is not None:
        maintenance.vacuum(opened, vacuum)
    if session.as_json:
        session.record({"lake": opened.directory.url, "erased_rows": erased})
    session.say(f"erased {plural(erased, 'row')}")
    if erased and vacuum != timedelta(0):
        session.say("the replaced files still hold them: --vacuum 0s removes these files at once")
    return ExitCode.OK
