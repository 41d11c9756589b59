"""The reference page matches the command line."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest
from docs.command_line import commands

from pgrouse.cli.root import root
from pgrouse.errors import ExitCode

PAGE = (Path(__file__).parents[2] / "docs/reference/cli.md").read_text()
COMMANDS = dict(commands(root, "pgrouse"))


def test_the_page_has_every_command_and_no_other() -> None:
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
