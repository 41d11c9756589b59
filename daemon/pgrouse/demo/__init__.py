"""`pgrouse demo`: a real job on real files, on a private PostgreSQL, with two daemons, in a quarter of a minute.

It breaks things on purpose (a handler that fails, a worker killed with -9, a notification that is never sent), shows what becomes of the
messages, and at the end checks its own books. `run.py` is the story in its order.
"""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """Run the command with these arguments; return its exit code.

    Raises:
        PgrouseError: what went wrong, with its own exit code.
        click.ClickException: the arguments are wrong.
        KeyboardInterrupt: Ctrl-C; everything that was started has been stopped.
    """
    from pgrouse.demo.command import demo  # noqa: PLC0415 - other commands start faster

    return int(demo.main(list(arguments), prog_name="pgrouse demo", standalone_mode=False) or 0)
