"""The address of a database, in the form that each driver reads."""

from __future__ import annotations

from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

# The options that have their own place in a URL; all others go into its query.
PLACES = ("user", "password", "host", "port", "dbname")


class DatabaseUrl(str):
    """A connection string `postgresql://…`, which libpq, psycopg and asyncpg read. Otherwise it is a str."""

    __slots__ = ()

    @classmethod
    def of(cls, dsn: str) -> DatabaseUrl:
        """Return any connection string as a URL."""
        parts = {name: str(value) for name, value in conninfo_to_dict(dsn).items() if value is not None}
        options = {name: value for name, value in parts.items() if name not in PLACES}
        host, port = parts.get("host", ""), parts.get("port", "")
        if "/" in host or "," in host:  # a socket's folder, or several hosts: they go into the query
            options |= {"host": host} | ({"port": port} if port else {})
            host = port = ""
        user, password = quote(parts.get("user", ""), safe=""), quote(parts.get("password", ""), safe="")
        credentials = f"{user}:{password}@" if password else f"{user}@" if user else ""
        address = f"[{host}]" if ":" in host else host
        query = f"?{urlencode(options, safe='/')}" if options else ""
        place = f"{address}:{port}" if port else address
        return cls(f"postgresql://{credentials}{place}/{quote(parts.get('dbname', ''), safe='')}{query}")

    def url(self, driver: str = "postgresql") -> str:
        """Return it with another scheme.

        `url("postgresql+asyncpg")` is for SQLAlchemy on asyncpg, `url("postgresql+psycopg")` on psycopg.
        """
        return f"{driver}{self.removeprefix('postgresql')}"
