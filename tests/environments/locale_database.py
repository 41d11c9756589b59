"""Databases of other locales and encodings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from psycopg import sql

from tests.server.postgres import Database, Postgres

OF_LOCALE = {
    "usual": "",
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
