"""The signals that ask a process to stop or to reload: SIGTERM, SIGINT and SIGHUP.

A process that runs until it is stopped uses one handler for them, from its start to its end; only the receiver changes.
At no moment does the interpreter's default apply, which would end the process as if it had crashed.

Such a process starts its children with these signals blocked, so that none ends a child before the child has its own
handler. Programs that handlers of messages execute get the defaults, as every program does; so do processes that they
fork.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeAlias

from pgrouse.errors import ExitCode

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

Receiver: TypeAlias = Callable[[signal.Signals], None]


def block() -> None:
    """Block the signals until `take` or `unblock`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def unblock() -> None:
    """Deliver the waiting signals to the current handlers. The process that started this one may have blocked them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


@contextmanager
def blocked() -> Iterator[None]:
    """Block the signals in this thread. A process that it starts in this block starts with the signals blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take() -> None:
    """Handle the signals.

    Until `deliver_to`, a stop signal ends the process, which has not begun anything. SIGHUP is kept.
    """
    _install()
    unblock()


def deliver_to(receiver: Receiver) -> None:
    """Call this for each signal from now on, in the main thread, between any two of its steps.

    Also for a SIGHUP that was kept.
    """
    _install()
    _state.receiver = receiver
    if _state.is_reload_due:
        _state.is_reload_due = False
        receiver(signal.SIGHUP)


def release() -> None:
    """Restore the handlers from before `take`."""
    for each, handler in _state.handlers_before.items():
        signal.signal(each, handler)
    _state.handlers_before.clear()
    _state.receiver = end_before_start


def ignore() -> None:
    """Ignore the signals in this process, which another process ends.

    Do not use SIG_IGN: programs that it executes would inherit it.
    """
    _restore_in_forks()
    for each in STOP_SIGNALS:
        signal.signal(each, _do_nothing)
        signal.siginterrupt(each, False)
    unblock()


def prepare_exec() -> None:
    """Prepare for the program that replaces this one: a signal waits until that program handles it."""
    block()
    if _state.is_nohup and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


def _install() -> None:
    if not _state.is_installed:
        _state.is_installed = True
        _state.is_nohup = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        _state.has_terminal = _can_open_terminal()
        _restore_in_forks()
        atexit.register(_ignore_at_end)
    for each in STOP_SIGNALS:
        before = signal.signal(each, _on_signal)
        if before is not _on_signal:
            _state.handlers_before[each] = before


def _on_signal(number: int, _frame: FrameType | None) -> None:
    which = signal.Signals(number)
    if which is signal.SIGHUP and _state.has_terminal and not _can_open_terminal():
        # The terminal was closed. The kernel and the shell may both report it.
        _state.has_terminal = False
        if _state.is_nohup:
            return
        which = signal.SIGTERM
    _state.receiver(which)


def _can_open_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True


def end_before_start(which: signal.Signals) -> None:
    """End the process: it was told to stop before it had begun anything. SIGHUP is kept."""
    if which is signal.SIGHUP:
        _state.is_reload_due = True
        return
    if which is signal.SIGINT:
        with suppress(OSError):
            os.write(2, b"pgrouse: interrupted\n")
    # Do not raise an exception: handler modules that are being imported could catch it.
    os._exit(ExitCode.INTERRUPTED if which is signal.SIGINT else ExitCode.OK)


def end_at_once(which: signal.Signals, code: int) -> None:
    """End the process with this exit code: it has done everything and only waits for its threads."""
    if which is not signal.SIGHUP:
        os._exit(code)


def _ignore_at_end() -> None:
    """Ignore signals while the interpreter ends.

    It restores the defaults first, and the process would seem to have crashed.
    """
    for each in STOP_SIGNALS:
        if signal.getsignal(each) is _on_signal:
            signal.signal(each, signal.SIG_IGN)


class _State:
    """The state of the signals of this process.

    Attributes:
        receiver: called for each signal.
        is_installed: whether the signals are handled.
        has_terminal: whether the process had a terminal at that time which is not closed yet.
        is_nohup: whether SIGHUP was ignored at that time, as with `nohup`: the process must outlive its terminal.
        is_reload_due: whether SIGHUP came before there was anything to reload.
        handlers_before: the handlers from before.
    """

    def __init__(self) -> None:
        self.receiver: Receiver = end_before_start
        self.is_installed = self.has_terminal = self.is_nohup = self.is_reload_due = False
        self.handlers_before: dict[signal.Signals, Any] = {}


_state = _State()


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


_masks = threading.local()


def _restore_in_forks() -> None:
    """Restore the interpreter's handlers in forks.

    For example, multiprocessing ends its processes by SIGTERM, at once.
    """
    os.register_at_fork(
        before=_block_for_fork, after_in_parent=_unblock_after_fork, after_in_child=_restore_handlers_in_fork
    )


def _block_for_fork() -> None:
    _masks.before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def _unblock_after_fork() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _masks.before)


def _restore_handlers_in_fork() -> None:
    for each in STOP_SIGNALS:
        if signal.getsignal(each) in (_on_signal, _do_nothing):
            signal.signal(each, signal.default_int_handler if each is signal.SIGINT else signal.SIG_DFL)
    _unblock_after_fork()
