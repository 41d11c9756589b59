"""A statement and its values, in the forms that the drivers of Python take."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from pgrouse.database.schema_name import SchemaName

NAME = re.compile(r"%\((\w+)\)s")
Value = str | int | bytes | None


class Statement(NamedTuple):
    """A statement, in the form that psycopg and Django take.

    It has only values that every driver passes unchanged, and whose conversion no user configures: times, intervals and
    JSON go as text, and the statement casts them.

    It says `messages`, and each form is the one for a schema: drivers take no other.

    Attributes:
        sql: values are written in it as `%(name)s`; there is no other percent sign.
        values: the values by name.
    """

    sql: str
    values: dict[str, Value]

    def with_names(self, schema: SchemaName) -> tuple[str, dict[str, Value]]:
        """Return it in the form of Django: `%(name)s`."""
        return schema.render(self.sql), self.values

    def with_colons(self, schema: SchemaName) -> tuple[str, dict[str, Value]]:
        """Return it in the form of SQLAlchemy's `text()`: `:name`."""
        return _colons(self.sql, schema), self.values

    def with_dollars(self, schema: SchemaName) -> tuple[str, list[Value]]:
        """Return it in the form of the server and asyncpg: `$1`, and a list."""
        sql, _, names = _dollars(self.sql, schema)
        return sql, [self.values[name] for name in names]

    def encoded(self, schema: SchemaName) -> tuple[bytes, list[Value]]:
        """Return the same in bytes, for a raw cursor of psycopg.

        The bytes of one text are one object, whose hash is cached.
        """
        _, sql, names = _dollars(self.sql, schema)
        return sql, [self.values[name] for name in names]


@lru_cache(maxsize=512)
def _colons(sql: str, schema: SchemaName) -> str:
    # The parentheses separate a name from the colons of a cast.
    return NAME.sub(r"(:\1)", schema.render(sql))


@lru_cache(maxsize=512)
def _dollars(sql: str, schema: SchemaName) -> tuple[str, bytes, list[str]]:
    names = list(dict.fromkeys(NAME.findall(sql)))
    text = NAME.sub(lambda found: f"${names.index(found[1]) + 1}", schema.render(sql))
    return text, text.encode(), names
