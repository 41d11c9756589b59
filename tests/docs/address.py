"""The address of a database, as the pages have it."""

from __future__ import annotations

from urllib.parse import urlencode

from psycopg.conninfo import conninfo_to_dict


def address(dsn: str) -> str:
    """Return a connection string as an address whose host may be a folder."""
    parts = conninfo_to_dict(dsn)
    others = {name: parts[name] for name in ("user", "host", "port", "password") if name in parts}
    return f"postgresql:///{parts['dbname']}?{urlencode(others)}"
