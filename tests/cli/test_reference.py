"""The reference page matches the command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from pgrouse.cli.root import root
from pgrouse.errors import ExitCode

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
SHARED = {"--config", "-c", "--json", "--help", "-h"}


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is not a group, with its full name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    ctx = click.Context(command)
    for each in command.list_commands(ctx):
        inner = command.get_command(ctx, each)
        assert inner is not None
        yield from commands(inner, f"{name} {each}")


COMMANDS = dict(commands(root, "pgrouse"))


def section(name: str) -> str:
    """Return the section of a command."""
    found = re.search(rf"^## `{name}\b[^`]*`\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no section on {name}"
    return found[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_is_on_the_page_and_no_other(name: str) -> None:
    options = {o for p in COMMANDS[name].params if isinstance(p, click.Option) for o in p.opts} - SHARED

    documented = re.findall(r"^\| `(--?[a-z-]+)(?:[^|]*?`, `(--[a-z-]+))?", section(name), re.MULTILINE)
    assert {each for row in documented for each in row if each} == options


def test_the_page_has_no_removed_command() -> None:
    headings = re.findall(r"^## `(pgrouse [a-z -]+[a-z])", PAGE, re.MULTILINE)

    assert sorted(re.sub(r" bash$", "", heading) for heading in headings) == sorted(COMMANDS)


def test_the_page_has_every_exit_code() -> None:
    assert [int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)] == [int(code) for code in ExitCode]


@pytest.mark.parametrize("name", sorted({"pgrouse", *(full.rpartition(" ")[0] for full in COMMANDS)}))
def test_the_list_of_commands_of_a_group_cuts_no_description(name: str) -> None:
    command: click.Command | None = root
    for part in name.split()[1:]:
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), part)
    assert isinstance(command, click.Group)

    shown = command.get_help(click.Context(command, terminal_width=80))

    assert [line for line in shown.splitlines() if line.endswith("...") and not line.startswith("Usage")] == []
