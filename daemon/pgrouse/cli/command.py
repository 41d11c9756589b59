"""Common parts of all commands: the options --config and --json, and the session."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    import psycopg

    from pgrouse.cli.output import Output
    from pgrouse.client.call import Call
    from pgrouse.config.config import Config

T = TypeVar("T")
# A listing that takes longer has the wrong filter, and fails with a hint.
READ_TIMEOUT = b"SET LOCAL statement_timeout = '30s'"


class CliSession:
    """One call of the command line: its configuration, its connection, its output.

    Attributes:
        config_path: the file that --config names.
        as_json: whether --json was given.
        overrides: values of flags that stand for keys of the configuration, by section.
    """

    def __init__(self) -> None:
        self.config_path: Path | None = None
        self.as_json = False
        self.overrides: dict[str, dict[str, Any]] = {}

    @cached_property
    def config(self) -> Config:
        """The configuration, read when it is first needed."""
        from pgrouse.config.config import load  # noqa: PLC0415 - pydantic takes its time

        config = load(self.config_path, overrides=self.overrides)
        if not config.alerts.to:
            return config
        from pgrouse.alerts.sinks import with_sinks  # noqa: PLC0415 - only where there are sinks

        return with_sinks(config)

    @cached_property
    def output(self) -> Output:
        """Where results go."""
        from pgrouse.cli.output import Output  # noqa: PLC0415

        return Output(self.as_json)

    @contextmanager
    def connect(self) -> Iterator[psycopg.Connection]:
        """Open an autocommit connection; warnings of the server go to the standard error."""
        from pgrouse.client.database import Database  # noqa: PLC0415

        with Database(self.config.database, "cli").connect_blocking("cli") as conn:
            conn.add_notice_handler(self._warn)
            yield conn

    def run(self, call: Call[T]) -> T:
        """Make one call on a connection of its own."""
        from pgrouse.client.call import run  # noqa: PLC0415 - as the driver

        with self.connect() as conn:
            return run(conn, call)

    def _warn(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            self.output.note(f"the server warns: {notice.message_primary}")

    @contextmanager
    def read(self) -> Iterator[psycopg.Connection]:
        """Yield a connection in a read-only transaction with a time limit."""
        from pgrouse import search_path  # noqa: PLC0415 - as the driver

        with self.connect() as conn, conn.transaction():
            conn.execute(b"SET TRANSACTION READ ONLY")
            conn.execute(search_path.LOCAL)
            conn.execute(READ_TIMEOUT)
            yield conn


def _use_config(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    if path is not None:
        ctx.ensure_object(CliSession).config_path = path


def _use_json(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.ensure_object(CliSession).as_json = True


def _shared_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["-c", "--config"],
            type=click.Path(path_type=Path, dir_okay=False),
            expose_value=False,
            callback=_use_config,
            help="The configuration file. Default: $PGROUSE_CONFIG, else pgrouse.toml.",
        ),
        click.Option(
            ["--json"],
            is_flag=True,
            expose_value=False,
            callback=_use_json,
            help="Print JSON: an object, or one per line.",
        ),
    ]


class Command(click.Command):
    """A command with the shared options."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _shared_options()


class CommandGroup(click.Group):
    """A noun and its verbs."""

    command_class = Command


class LazyGroup(click.Group):
    """A group that imports a command only when it is called: by its name, where it is and what its help says of it."""

    def __init__(self, *args: Any, lazy: dict[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params += _shared_options()
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of use, not of the alphabet."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self._lazy:
            return None
        module, _, attribute = self._lazy[cmd_name][0].partition(":")
        found: click.Command = getattr(importlib.import_module(module), attribute)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the nearest name for an unknown one."""
        name = args[0]
        if name in self._lazy or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        near = difflib.get_close_matches(name, self._lazy, n=1)
        raise click.UsageError(f"there is no command '{name}'" + (f"; did you mean '{near[0]}'?" if near else ""), ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in self._lazy.items()])
