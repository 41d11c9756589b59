"""The tables of options of the command line, generated from click."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from pgrouse.cli.root import root

# The options of every command: the page explains them once.
SHARED = {"--config", "--json", "--help"}
# Code in a help text that is not marked as code: options, settings, names of variables.
CODE = re.compile(
    r"`[^`]*`|(?<![\w-])--[a-z][a-z-]*|\b[a-z]+\.[a-z_.]*[a-z]\b(?!/)"
    r"|\b[a-z]+(?:_[a-z]+)+(?:=\w+)?\b|\b[A-Z]+(?:_[A-Z]+)+\b"
    r"|'[^' ]*\*'|(?<= )\*(?=[ .])|(?<!\w)\.dlq\b|local\[4\]|(?<![\w:])[0-9]+[smhd]\b"
)


def written(page: str) -> str:
    """Return the page of the command line with its current tables of options."""
    for name, command in commands(root, "pgrouse"):
        if options := list(rows(command)):
            page = _replaced(page, name, ["| option | |", "|---|---|", *options])
    return page


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that is not a group, with its full name."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    context = click.Context(command)
    for each in command.list_commands(context):
        if inner := command.get_command(context, each):
            yield from commands(inner, f"{name} {each}")


def rows(command: click.Command) -> Iterator[str]:
    """Yield a row of the table for each option that only this command has."""
    options = (each for each in command.params if isinstance(each, click.Option) and not SHARED & {*each.opts})
    for option in options:
        names = ", ".join(f"`{' '.join(filter(None, [each, _value(option)]))}`" for each in option.opts)
        yield f"| {names} | {' '.join(_text(option))} |".replace("¦", "\\|")


def _value(option: click.Option) -> str:
    """Return the placeholder of an option's value, if --help has only its type."""
    if option.is_flag:
        return ""
    if option.metavar:
        return option.metavar.replace("|", "¦")
    if isinstance(option.type, click.Choice):
        return "¦".join(map(str, option.type.choices))
    if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType):
        return "N"
    if option.type.name in ("text", "filename", "directory"):
        return max(option.opts, key=len).removeprefix("--").replace("-", "_").upper()
    return option.type.name.upper()


def _text(option: click.Option) -> Iterator[str]:
    text, _, default = (option.help or "").removesuffix("]").partition("[default: ")
    text = CODE.sub(lambda found: found[0] if found[0].startswith("`") else f"`{found[0]}`", text.strip())
    yield text.replace("|", "¦")
    default = default or _default(option)
    if default:
        yield f"Default: `{default}`."
    if isinstance(option.type, click.IntRange) and None not in (option.type.min, option.type.max):
        yield f"From {option.type.min} to {option.type.max}."
    if option.multiple and "several times" not in text and "more than once" not in text:
        yield "May be given several times."
    if option.required:
        yield "Required."


def _default(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    value = option.default if option.show_default else ""
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _replaced(page: str, name: str, table: list[str]) -> str:
    """Return the page with a new table in the section of a command."""
    heading = re.search(rf"^## `{name}\b[^`]*`$", page, re.MULTILINE)
    if heading is None:
        raise click.ClickException(f"docs/reference/cli.md has no section of {name}: add its heading")
    begin = page.find("\n| option |", heading.end()) + 1
    end = page.find("\n## ", heading.end())
    if begin == 0 or begin > end > 0:
        raise click.ClickException(f"docs/reference/cli.md has no table of options of {name}: add `| option | |`")
    rest = re.sub(r"\A(?:\|.*\n)+", "", page[begin:])
    return page[:begin] + "\n".join(table) + "\n" + rest
