"""Connection strings that also say in which schema the queue is, for drivers and executors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgrouse.database import schema_name
from pgrouse.database.schema_name import SchemaName
from pgrouse.errors import ConfigError

if TYPE_CHECKING:
    from pgrouse.config.config import DatabaseSettings


class QueueDsn(str):
    """A connection string that says in which schema the queue is, also where an executor reads it.

    Attributes:
        schema: the name.
    """

    __slots__ = ("schema",)
    schema: str

    def __new__(cls, dsn: str, schema: str) -> QueueDsn:
        """Return the connection string; empty = the environment."""
        made = super().__new__(cls, dsn)
        made.schema = schema
        return made

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """Keep the schema when it is sent to an executor."""
        return QueueDsn, (str(self), self.schema)


def queue_dsn(dsn: str | None, schema: str | None) -> str | None:
    """Return a connection string for the queue in a schema.

    schema: None = that of the environment, else `messages`.

    Raises:
        ConfigError: a schema of the queue cannot have this name.
    """
    try:
        name = schema_name.schema_name(schema) if schema else schema_name.current()
    except ValueError as error:
        raise ConfigError(f"option schema: {error}") from error
    return dsn if name.is_default and name is schema_name.current() else QueueDsn(dsn or "", name.name)


def schema_of(dsn: str | None) -> SchemaName:
    """Return the schema of the queue that a connection string leads to."""
    return schema_name.schema_name(dsn.schema) if isinstance(dsn, QueueDsn) else schema_name.current()


def dsn_of(database: DatabaseSettings) -> str | None:
    """Return the connection string of the section `[database]`."""
    return queue_dsn(database.dsn or None, database.schema)
