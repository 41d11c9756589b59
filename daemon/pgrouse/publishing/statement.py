"""A statement and its values, and how the drivers of Python want them written."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

NAME = re.compile(r"%\((\w+)\)s")
Value = str | int | bytes | None


class Statement(NamedTuple):
    """A statement, as psycopg and Django take it.

    Only of types that no driver converts in a way of its own, or lets its user convert: times, intervals and JSON go as text, and the
    statement casts them.

    Attributes:
        sql: values stand in it as `%(name)s`; there is no other percent sign.
        values: by name.
    """

    sql: str
    values: dict[str, Value]

    def with_colons(self) -> tuple[str, dict[str, Value]]:
        """Return it as SQLAlchemy's `text()` takes it: `:name`."""
        return _colons(self.sql), self.values

    def with_dollars(self) -> tuple[str, list[Value]]:
        """Return it as the server itself takes it, and asyncpg: `$1`, and a list."""
        sql, _, names = _dollars(self.sql)
        return sql, [self.values[name] for name in names]

    def encoded(self) -> tuple[bytes, list[Value]]:
        """Return the same in bytes, as a raw cursor of psycopg takes it. The bytes of a text are one object, whose hash is known."""
        _, sql, names = _dollars(self.sql)
        return sql, [self.values[name] for name in names]


@lru_cache(maxsize=512)
def _colons(sql: str) -> str:
    # The parentheses keep a name apart from the colons of a cast.
    return NAME.sub(r"(:\1)", sql)


@lru_cache(maxsize=512)
def _dollars(sql: str) -> tuple[str, bytes, list[str]]:
    names = list(dict.fromkeys(NAME.findall(sql)))
    text = NAME.sub(lambda found: f"${names.index(found[1]) + 1}", sql)
    return text, text.encode(), names
