"""How far an export is behind: the rows that it has not copied yet, and the age of the oldest.

`--max-lag` makes too large a lag an error.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pgrouse.cli.param_types import DURATION
from pgrouse.config.duration import show
from pgrouse.errors import ExitCode, PgrouseError
from pgrouse.format import plural
from pyspark_pgrouse.position import Position, watermark_lag
from pyspark_pgrouse.read.scope import Scope

if TYPE_CHECKING:
    import psycopg

# The count stops at a million rows: then it is clear that the export is far behind.
MOST_ROWS = 1_000_000
OLDEST = """
    SELECT count(*), coalesce(extract(epoch FROM clock_timestamp() - min(w.archived_at)), 0)::float8
    FROM (
      SELECT a.archived_at
      FROM messages.message_archive AS a
      WHERE (a.archive_xid, a.id) > (%(xid)s::xid8, %(id)s) AND {scope}
      ORDER BY a.archive_xid, a.id
      LIMIT %(most)s
    ) AS w
"""


class LagExceeded(PgrouseError):
    """An export is further behind than it may be."""

    exit_code = ExitCode.LAG_EXCEEDED


@dataclass(frozen=True)
class ExportLag:
    """The rows that an export has not copied yet.

    rows: at most a million are counted; seconds: the age of the oldest, or 0 if there are none.
    """

    rows: int
    seconds: float


def max_lag_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--max-lag`."""
    return click.option(
        "--max-lag",
        type=DURATION,
        help="Fail with exit code 3 if, after the run, a row has waited for longer than this to be exported, like 1h.",
    )(command)


def export_lag(conn: psycopg.Connection[Any], position: Position, scope: Scope) -> ExportLag:
    """Measure the rows after a position."""
    asked = OLDEST.format(scope=scope.sql().replace("%", "%%"))
    row = conn.execute(asked, {"xid": position.xid, "id": position.id, "most": MOST_ROWS}).fetchone()
    return ExportLag(*row)  # type: ignore[misc]


def check_lag(conn: psycopg.Connection[Any], lag: ExportLag, max_lag: timedelta | None) -> None:
    """Check that an export is not too far behind.

    Raises:
        LagExceeded: it is; the text says what delays it.
    """
    if max_lag is None or lag.seconds <= max_lag.total_seconds():
        return
    rows = plural(lag.rows, "row")
    raise LagExceeded(
        f"{rows} {'waits' if lag.rows == 1 else 'wait'} to be exported, the oldest for {show(timedelta(seconds=round(lag.seconds)))}, "
        f"which is more than --max-lag {show(max_lag)}: {watermark_lag(conn)}"
    )
