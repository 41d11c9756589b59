"""The process that a thread or a connection belongs to.

A fork copies objects and not threads, and both processes would read from the same connection. So what owns one of them
asks here before it uses it.
"""

from __future__ import annotations

import os

from pgrouse.errors import ForkedProcess


class OwnerProcess:
    """The process in which something was opened.

    Args:
        what: names it in the error, like "Waiter".
    """

    __slots__ = ("_pid", "_what")

    def __init__(self, what: str) -> None:
        self._what, self._pid = what, os.getpid()

    @property
    def is_here(self) -> bool:
        """Whether that is this process, and not a fork of it."""
        return os.getpid() == self._pid

    def check(self) -> None:
        """Check that this is the process.

        Raises:
            ForkedProcess: this is a fork of it.
        """
        if os.getpid() != self._pid:
            raise ForkedProcess(
                f"this {self._what} was opened in process {self._pid}, of which this process, {os.getpid()}, is a "
                "fork: threads and connections belong to the process that opened them. "
                "Open another one here, after the fork"
            )
