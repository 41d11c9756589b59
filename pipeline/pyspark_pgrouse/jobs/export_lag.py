"""How far an export is behind: the rows that it has not copied yet, and the age of the oldest.

`--max-lag` makes too large a lag an error.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from pgrouse.client.call import run
from pgrouse.client.queries.pipeline.archive_row import RowsAfter, rows_after
from pgrouse.config.duration import show
from pgrouse.errors import ExitCode, PgrouseError
from pgrouse.terminal.param_types import DURATION
from pgrouse.values.format import plural
from pyspark_pgrouse.read.position import Position, watermark_lag

if TYPE_CHECKING:
    import psycopg

    from pgrouse.client.queries.pipeline.row import Scope

# The count stops at a million rows: then it is clear that the export is far behind.
MOST_ROWS = 1_000_000


class LagExceeded(PgrouseError):
    """An export is further behind than it may be."""

    exit_code = ExitCode.LAG_EXCEEDED


def max_lag_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--max-lag`."""
    return click.option(
        "--max-lag",
        type=DURATION,
        help="Fail with exit code 3 if, after the run, a row has waited for longer than this to be exported, like 1h.",
    )(command)


def export_lag(conn: psycopg.Connection[Any], position: Position, scope: Scope) -> RowsAfter:
    """Measure the rows that an export at this position has not copied yet; at most a million are counted."""
    (lag,) = run(conn, rows_after(position.key, scope.sql(), MOST_ROWS))
    return lag


def check_lag(conn: psycopg.Connection[Any], lag: RowsAfter, max_lag: timedelta | None) -> None:
    """Check that an export is not too far behind.

    Raises:
        LagExceeded: it is; the text says what delays it.
    """
    if max_lag is None or lag.seconds <= max_lag.total_seconds():
        return
    rows = plural(lag.rows, "row")
    raise LagExceeded(
        f"{rows} {'waits' if lag.rows == 1 else 'wait'} to be exported, the oldest "
        f"for {show(timedelta(seconds=round(lag.seconds)))}, "
        f"which is more than --max-lag {show(max_lag)}: {watermark_lag(conn)}"
    )
