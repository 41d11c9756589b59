"""Which server a connection leads to, as attributes of a span."""

from __future__ import annotations

import psycopg

from pgrouse.telemetry import names


def server(conn: object) -> dict[str, str | int]:
    """Return its address and port, if it is psycopg's; nothing if it is another's, or no connection any more."""
    if not isinstance(conn, psycopg.Connection | psycopg.AsyncConnection):
        return {}
    try:
        return {names.SERVER_ADDRESS: conn.info.host, names.SERVER_PORT: conn.info.port}
    except psycopg.Error:
        return {}
