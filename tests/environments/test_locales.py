"""Databases of other locales and encodings.

Messages live there as usual; what does not fit into the encoding is refused by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from pgrouse import publish
from tests.environments.life import ENDED, Life
from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

OF_LOCALE = {
    "Turkish": "LOCALE_PROVIDER icu ICU_LOCALE 'tr-TR' LOCALE 'C.UTF-8' ENCODING 'UTF8'",
    "Latin 1": "LOCALE 'C' ENCODING 'LATIN1'",
    "no encoding": "LOCALE 'C' ENCODING 'SQL_ASCII'",
}


@contextmanager
def database_of(server: Postgres, locale: str) -> Iterator[Database]:
    """An empty database of a locale; the test is skipped where the server knows no ICU."""
    with server.new_database() as database, server.admin() as admin:
        name = sql.Identifier(database.name)
        admin.execute(sql.SQL("DROP DATABASE {}").format(name))
        try:
            # The arguments are constants.
            admin.execute(sql.SQL("CREATE DATABASE {} TEMPLATE template0 {}").format(name, sql.SQL(OF_LOCALE[locale])))
        except psycopg.errors.FeatureNotSupported as error:
            pytest.skip(f"this server has no ICU: {error}")
        yield database


@pytest.mark.slow
@pytest.mark.parametrize("locale", OF_LOCALE)
def test_messages_live_as_usual(locale: str, server: Postgres, life_in: Callable[[Database], Life]) -> None:
    with database_of(server, locale) as database:
        life = life_in(database)
        # In a database without an encoding, psycopg takes no bytes for text unless it is told which.
        life.options = {"client_encoding": "utf8"} if locale == "no encoding" else {}
        life.install()
        daemon = life.run()
        life.publish({"text": "äß", "float": 0.1})
        ended = life.finish(daemon)
        life.look()
        life.leave(daemon)

    assert ended == ENDED


def test_a_turkish_database_reads_capitals_in_schedules_and_searches(
    server: Postgres, life_in: Callable[[Database], Life]
) -> None:
    with database_of(server, "Turkish") as database:
        life_in(database).install()
        queue = Queue(database.connect())

        for cron in ("0 6 * * FRI", "@MIDNIGHT", "@WEEKLY", "15 SECONDS", "0 0 * APR *"):
            assert queue.rows("SELECT * FROM messages.next_ticks(%s)", [cron]), cron
        queue.publish()
        queue.settle("fail", queue.claim(), ["IOError: DISK IS FULL"])
        assert len(queue.rows("SELECT * FROM messages.find_dead(p_error => 'disk is full')")) == 1
        assert queue.call("error_fingerprint", "INVALID ID 7") == queue.call("error_fingerprint", "invalid id 8")


def test_a_text_that_does_not_fit_into_the_encoding_is_refused_and_the_others_are_published(
    server: Postgres, life_in: Callable[[Database], Life]
) -> None:
    with database_of(server, "Latin 1") as database:
        life = life_in(database)
        life.install()
        conn = database.connect()

        # An error of psycopg: the connection has the encoding of the database.
        with pytest.raises(UnicodeEncodeError, match="latin-1"):
            publish(conn, "t", {"price": "7 €"}, channel="€")
        refused = life.pgrouse("publish", "t", '"€"', "--key", "€")
        published = publish(conn, "t", {"price": "7 é"}, channel="é")
        query = "SELECT id FROM messages.find_messages(p_topic => 't', p_channel => %s) WHERE id IS NOT NULL"
        found = [conn.execute(query, [channel]).fetchall() for channel in (None, "é")]

    assert refused.code == 1
    assert "LATIN1" in refused.err
    assert found == [[(published,)]] * 2
