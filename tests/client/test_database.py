"""pgrouse.database: the settings of a daemon's connections, whatever the defaults of the database are."""

from __future__ import annotations

import asyncio

from pgrouse.client.connection.database import Database
from pgrouse.config import config
from tests.server import postgres

LEVEL = "SELECT current_setting('transaction_isolation')"


def test_a_daemons_own_connections_are_read_committed_and_those_of_handlers_follow_the_database(
    database: postgres.Database,
) -> None:
    database.connect().execute(f"ALTER DATABASE {database.name} SET default_transaction_isolation = 'repeatable read'")
    connecting = Database(config.DatabaseSettings(dsn=database.dsn), "w")

    async def of_a_loop() -> object:
        async with await connecting.connect("claim-0") as conn:
            return await (await conn.execute(LEVEL)).fetchone()

    with connecting.connect_blocking("heartbeat") as conn:
        of_a_thread = conn.execute(LEVEL).fetchone()
    with connecting.blocking_pool() as pool, pool.connection() as conn:
        of_a_handler = conn.execute(LEVEL).fetchone()

    assert (asyncio.run(of_a_loop()), of_a_thread, of_a_handler) == (
        ("read committed",),
        ("read committed",),
        ("repeatable read",),
    )
