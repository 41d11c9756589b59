"""Groups that import a command when it is called.

What a command needs is imported at the top of its file, and `pgrouse --help` imports none of it.
"""

from __future__ import annotations

import difflib
import importlib
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

SESSION = "pgrouse.terminal.command:CliSession"


def load(place: str) -> Any:
    """Import the object at a place, `module:name`."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def _use_config(ctx: click.Context, _param: click.Parameter, path: Path | None) -> None:
    if path is not None:
        ctx.ensure_object(load(SESSION)).config_path = path


def _use_json(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    if wanted:
        ctx.ensure_object(load(SESSION)).as_json = True


def shared_options() -> list[click.Parameter]:
    """Return the options that every command and every group has."""
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


class LazyGroup(click.Group):
    """A group that imports a command only when it is called.

    Args:
        lazy: by the name of a command, where it is and what the help says of it.
        sections: the same by the headings under which the help lists them; None = all under one.
    """

    def __init__(
        self,
        *args: Any,
        lazy: dict[str, tuple[str, str]],
        sections: dict[str, dict[str, tuple[str, str]]] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.params += shared_options()
        self._lazy = lazy
        self._sections = sections or {"Commands": lazy}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names in the order of use, not of the alphabet."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command."""
        if cmd_name not in self._lazy:
            return None
        found: click.Command = load(self._lazy[cmd_name][0])
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
        """Write the list of commands without importing any, with all texts in one column."""
        width = max(map(len, self._lazy))
        for heading, commands in self._sections.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), text) for name, (_, text) in commands.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the names of commands, and the options of the group, without importing any command."""
        commands = [(name, text) for name, (_, text) in self._lazy.items() if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=text) for name, text in commands] + options
