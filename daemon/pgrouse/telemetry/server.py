"""The server of a connection, as attributes of a span."""

from __future__ import annotations

import psycopg

from pgrouse.telemetry import names


def server_attributes(conn: object) -> dict[str, str | int]:
    """Return its address and port, if it is a psycopg connection; nothing for others and for closed ones."""
    if not isinstance(conn, psycopg.Connection | psycopg.AsyncConnection):
        return {}
    try:
        return {names.SERVER_ADDRESS: conn.info.host, names.SERVER_PORT: conn.info.port}
    except psycopg.Error:
        return {}
