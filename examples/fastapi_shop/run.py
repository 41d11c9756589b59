"""The only command: finds a database, installs the schema, and serves the shop."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from pgrouse import migrate, testing


@contextmanager
def database() -> Generator[testing.DatabaseUrl]:
    """Use the database of $DATABASE_URL, else a new one that is dropped at the end."""
    if given := os.environ.get("DATABASE_URL"):
        migrate(given)
        yield testing.DatabaseUrl.of(given)
        return
    with testing.database() as made:
        yield made


def main() -> None:
    port = int(os.environ.get("PORT", "8000"))
    with database() as url:
        os.environ["PGROUSE_DSN"], os.environ["SHOP_DATABASE_URL"] = url, url.url("postgresql+asyncpg")
        sys.path.insert(0, str(Path(__file__).parent))
        from shop.app import STAFF_KEY, app  # noqa: PLC0415 - it reads the environment

        print(f"staff: http://localhost:{port}/staff/{STAFF_KEY}", flush=True)
        uvicorn.run(app, port=port)


if __name__ == "__main__":
    main()
