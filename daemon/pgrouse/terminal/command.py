"""Common parts of all commands: their session, and the shared options of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pgrouse.client.call import Call, run
from pgrouse.database import schema_name, session_settings
from pgrouse.database.database_errors import silence_driver
from pgrouse.terminal.lazy_group import shared_options
from pgrouse.terminal.output import Output

if TYPE_CHECKING:
    import psycopg
    from _typeshed import DataclassInstance

    from pgrouse.config.config import Config

T = TypeVar("T")
R = TypeVar("R", bound="DataclassInstance")
# A listing that takes longer has the wrong filter, and fails with a hint.
READ_TIMEOUT = b"SET LOCAL statement_timeout = '30s'"


class CliSession(Output):
    """One call of the command line: its configuration, its connection, its output.

    Attributes:
        config_path: the file that --config names.
        as_json: whether --json was given.
        overrides: values of flags that stand for keys of the configuration, by section.
    """

    def __init__(self) -> None:
        super().__init__(as_json=False)
        silence_driver()
        self.config_path: Path | None = None
        self.overrides: dict[str, dict[str, Any]] = {}

    @cached_property
    def config(self) -> Config:
        """The configuration, read when it is first needed."""
        found = _with_sinks(self.read_config())
        schema_name.set_default(schema_name.schema_name(found.database.schema))
        return found

    @cached_property
    def config_with_code(self) -> Config:
        """The configuration with what its modules declare: for commands that need handlers, policies or schedules."""
        from pgrouse.handlers.declaration.discovery import with_declared  # noqa: PLC0415 - slow to import: handlers

        return _with_sinks(with_declared(self.config))

    def read_config(self) -> Config:
        """Read the configuration."""
        from pgrouse.config.config import load  # noqa: PLC0415 - slow to import: --help does without it

        return load(self.config_path, overrides=self.overrides)

    def how_to_add_a_handler(self, config: Config) -> str:
        """Return what to do where a configuration has no handler."""
        where = config.path or "a pgrouse.toml (`pgrouse init` writes one)"
        return f'add a table [topics."orders.created"] with its handler to {where}, or name a module with @topic by -m'

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection]:
        """Open an autocommit connection; warnings of the server go to the standard error."""
        from pgrouse.client.connection.database import Database  # noqa: PLC0415 - slow to import: --help does without it

        with Database(self.config.database, "cli").connect_blocking("cli") as conn:
            conn.add_notice_handler(self._warn)
            yield conn

    def run(self, call: Call[T]) -> T:
        """Make one call on a connection of its own."""
        with self.connect() as conn:
            return run(conn, call)

    def read_rows(self, call: Call[list[R]]) -> list[dict[str, Any]]:
        """Make a call that returns rows in a transaction as of `read`, and return each as a dict, as a table has it."""
        with self.read() as conn:
            return [asdict(each) for each in run(conn, call)]

    def _warn(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.note(f"the server warns: {notice.message_primary}")

    @contextmanager
    def read(self) -> Iterator[psycopg.Connection]:
        """Yield a connection in a read-only transaction with a time limit."""
        with self.connect() as conn, conn.transaction():
            conn.execute(b"SET TRANSACTION READ ONLY")
            conn.execute(session_settings.LOCAL)
            conn.execute(READ_TIMEOUT)
            yield conn


def _with_sinks(config: Config) -> Config:
    if not config.alerts.to:
        return config
    from pgrouse.alerts.sinks import with_sinks  # noqa: PLC0415 - slow to import: most configurations have no sink

    return with_sinks(config)


class Command(click.Command):
    """A command with the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()


class CommandGroup(click.Group):
    """A noun and its verbs."""

    command_class = Command
