"""`pgrouse doctor`: finds problems that cause no error, and says how to fix them."""

from __future__ import annotations

import difflib
import shutil
import textwrap
from collections import Counter
from dataclasses import asdict
from itertools import groupby

import click

from pgrouse.doctor import CODES, Finding, Level, examine
from pgrouse.errors import ExitCode
from pgrouse.terminal.command import CliSession, Command
from pgrouse.values.format import harmless, plural

# The widest lines that are easy to read; a terminal may be wider.
WIDEST = 120
# Further findings of one code are only counted, unless they were asked for by --only.
MANY = 5
STYLES = {"ok": ("green", False), "warn": ("yellow", True), "fail": ("red", True)}


@click.command(cls=Command)
@click.option("--only", metavar="CODE", multiple=True, help="Only this check; may be given several times.")
@click.option("--quiet", is_flag=True, help="Do not print checks without a problem.")
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@click.pass_obj
def doctor(session: CliSession, only: tuple[str, ...], quiet: bool, strict: bool) -> int:
    """Find problems that cause no error, and how to fix them.

    It changes nothing. Exit code 0 if nothing fails, warnings or not; 1 if something does; 69 if the database cannot be
    reached.
    """
    for code in only:
        _refuse_unknown(code, CODES)
    found = examine(session.config, only)
    shown = [each for each in _in_order(found) if not (quiet and each.level == "ok")]
    if session.as_json:
        for each in shown:
            session.record(asdict(each))
    else:
        _print(shown, found, session.on_terminal, all_of_it=bool(only))
    return _code(found, strict)


def _refuse_unknown(code: str, known: tuple[str, ...]) -> None:
    if code not in known:
        near = difflib.get_close_matches(code, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise click.UsageError(f"there is no code {code!r}; {hint}")


def _in_order(found: list[Finding]) -> list[Finding]:
    """Sort by level, the worst last, next to the prompt."""
    ranks = {"ok": 0, "warn": 1, "fail": 2}
    places = {each.code: place for place, each in reversed(list(enumerate(found)))}
    return sorted(found, key=lambda each: (ranks[each.level], places[each.code]))


def _code(found: list[Finding], strict: bool) -> ExitCode:
    levels = {each.level for each in found}
    if any(each.code == "connection" and each.level == "fail" for each in found):
        return ExitCode.DATABASE_UNREACHABLE
    if "fail" in levels or (strict and "warn" in levels):
        return ExitCode.FOUND_A_PROBLEM
    return ExitCode.OK


def _print(shown: list[Finding], found: list[Finding], on_terminal: bool, *, all_of_it: bool) -> None:
    width = min(shutil.get_terminal_size().columns, WIDEST) if on_terminal else 0
    column = max((len(each.code) for each in shown), default=0)
    for code, alike in groupby(shown, key=lambda each: (each.level, each.code)):
        same = list(alike)
        printed = same if all_of_it else same[:MANY]
        for each in printed:
            click.echo("\n".join(_lines(each, column, width)), color=None if on_terminal else False)
        if rest := len(same) - len(printed):
            click.echo(f"{' ' * (column + 8)}and {rest} more: `pgrouse doctor --only {code[1]}`")
    click.echo(_summary(found))


def _lines(each: Finding, column: int, width: int) -> list[str]:
    """Return the lines of one finding: level, code and state; below them the fix."""
    indent = " " * (column + 8)
    lines = _folded(each.what, indent, width)
    head = f"{_level(each.level)}  {each.code:<{column}}  "
    word = "hint" if each.level == "ok" else "fix"
    fix = _folded(f"{word}: {each.fix}", indent, width, more="      ") if each.fix else []
    return [head + lines[0].lstrip(), *lines[1:], *fix]


def _level(level: Level) -> str:
    colour, bold = STYLES[level]
    return click.style(f"{level:<4}", fg=colour, bold=bold)


def _folded(text: str, indent: str, width: int, more: str = "") -> list[str]:
    """Break a text between words, but only for a terminal; every line is indented."""
    text = " ".join(harmless(text).split())
    if not width:
        return [indent + text]
    return textwrap.wrap(
        text,
        max(width, len(indent) + 20),
        initial_indent=indent,
        subsequent_indent=indent + more,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _summary(found: list[Finding]) -> str:
    worst = {each.code: each.level for each in _in_order(found)}
    looked = f"{plural(len(worst), 'check')} made"
    counts = Counter(str(level) for level in worst.values())
    wrong = [f"{counts[level]} {level}" for level in ("fail", "warn") if counts[level]]
    return f"{looked}: {', '.join(wrong)}" if wrong else f"no problems: {looked}"
