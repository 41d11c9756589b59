"""Where the queue cannot work, it says so at start: which setting of whom, and the statement that changes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgrouse.client.connection.database import Database as Connector
from pgrouse.config.config import load
from pgrouse.database import session_settings
from pgrouse.errors import ConfigError
from tests.environments.life import Life, configure
from tests.server.postgres import Database

# Its value, the one that is needed, and how `migrate` by a superuser ends, who may set the second one for a
# transaction.
REFUSED = {
    "default_transaction_read_only": ("on", "off", 78),
    "session_replication_role": ("replica", "origin", 0),
}


@pytest.mark.parametrize("setting", REFUSED)
def test_a_daemon_ends_at_start_and_names_the_setting_and_what_changes_it(
    setting: str, database: Database, life_in: Callable[[Database], Life]
) -> None:
    value, needed, code = REFUSED[setting]
    configure(database, {setting: value})
    life = life_in(database)

    daemon = life.launch()
    migrated = life.pgrouse("migrate")

    assert daemon.exit_code() == 78
    fix = f"""ALTER ROLE "postgres" IN DATABASE "{database.name}" SET "{setting}" = '{needed}'"""
    assert fix in daemon.log.read_text()
    assert (migrated.code, fix in migrated.err) == (code, code != 0)

    with database.server.admin() as conn:
        conn.execute(fix.encode())
    assert life.pgrouse("migrate").code == 0
    life.run()


def test_a_primary_that_only_reads_is_not_called_a_standby(
    database: Database, life_in: Callable[[Database], Life]
) -> None:
    configure(database, {"default_transaction_read_only": "on"})
    life = life_in(database)

    published = life.pgrouse("publish", "t", "1")
    listed = life.pgrouse("message", "list")
    examined = life.pgrouse("doctor", "--only", "settings")

    assert (published.code, listed.code) == (69, 0)
    assert "default_transaction_read_only is on for this role, database or server" in published.err
    assert f"ALTER DATABASE {database.name} RESET default_transaction_read_only" in examined.out


@pytest.fixture
def anothers(database: Database) -> Iterator[psycopg.Connection]:
    """A session with the settings of the database, as one behind a pooler is."""
    configure(database, {"DateStyle": "German", "array_nulls": "off", "default_transaction_isolation": "serializable"})
    with database.connect() as conn:
        yield conn


def test_all_that_does_not_fit_is_named_where_a_session_is_not_ours_to_set(anothers: psycopg.Connection) -> None:
    with pytest.raises(ConfigError) as error:
        session_settings.check(anothers)

    for part in (
        "DateStyle is German, DMY here",
        "array_nulls is off here",
        "default_transaction_isolation is serializable here",
    ):
        assert part in str(error.value)


def test_every_connection_of_ours_has_our_settings(database: Database) -> None:
    configure(database, {name: OTHERS[name] for name in session_settings.SETTINGS if name in OTHERS})
    connector = Connector(load(environ={}, overrides={"database": {"dsn": database.dsn}}).database, "w")

    with connector.connect_blocking("cli") as conn:
        shown = {
            name: conn.execute("SELECT current_setting(%s, true)", [name]).fetchone()
            for name in session_settings.SETTINGS
        }

    wanted = {name: (value,) for name, value in session_settings.SETTINGS.items()}
    assert {name: value for name, value in shown.items() if value != (None,)} == {
        n: v for n, v in wanted.items() if shown[n] != (None,)
    }


OTHERS = {
    "search_path": "nowhere", "DateStyle": "German, DMY", "IntervalStyle": "iso_8601", "TimeZone": "Asia/Kolkata",
    "extra_float_digits": "-3",
    "bytea_output": "escape", "array_nulls": "off", "standard_conforming_strings": "off", "transform_null_equals": "on",
    "quote_all_identifiers": "on", "row_security": "on", "default_transaction_isolation": "serializable",
    "statement_timeout": "9s",
    "lock_timeout": "9s", "idle_session_timeout": "9s",
}  # fmt: skip
