"""Which server a connection leads to, as attributes of a span."""

from __future__ import annotations

from typing import Any

import psycopg

from pgrouse.telemetry import names


def server(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> dict[str, str | int]:
    """Return its address and port; nothing if the connection is no connection any more."""
    try:
        return {names.SERVER_ADDRESS: conn.info.host, names.SERVER_PORT: conn.info.port}
    except psycopg.Error:
        return {}
