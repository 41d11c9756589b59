"""The command line: a file per command. `main` is the entry point; commands are imported when they are called."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from pgrouse.process import stop_signals

# The commands that run until they are stopped. SIGTERM is their regular end, at every moment.
UNTIL_STOPPED = (["run"], ["web"], ["alert", "run"])


def main(arguments: Sequence[str] | None = None, session: object = None, program: str = "pgrouse") -> int:
    """Run the command line, and return its exit code. Every error becomes one clear line on the standard error, here.

    Args:
        arguments: those of the process, unless given.
        session: a CliSession, if not the usual one.
        program: what the user calls it by.
    """
    if arguments is None:
        return _main(sys.argv[1:], session, program)
    try:
        return _main(list(arguments), session, program)
    finally:
        stop_signals.release()


def _main(arguments: list[str], session: object, program: str) -> int:
    if any(_words(arguments)[: len(words)] == words for words in UNTIL_STOPPED):
        stop_signals.take()
    from pgrouse.cli.command_line import run_command  # noqa: PLC0415 - slow to import: after the signals are taken

    return run_command(arguments, session, program)


def _words(arguments: list[str]) -> list[str]:
    """Return the arguments that are no options before the command, nor their values."""
    rest = iter(arguments)
    return [each for each in rest if not (each in ("-c", "--config") and next(rest, None)) and not each.startswith("-")]
