"""The signals that ask a process to stop or to reload: SIGTERM, SIGINT and SIGHUP.

A process that runs until it is stopped takes them with one handler, from its entry to its end: only who is told of them changes. At no moment do
they meet a default of the interpreter, which would end the process as if it had crashed.

A process that such a process starts gets them blocked, so that none ends it before its own handler is there. What handlers of messages execute
gets the defaults, as every program does; so does what they fork.
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
    """Let the signals wait until `take` or `unblock`."""
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)


def unblock() -> None:
    """Let the signals through that waited, to the handlers of now. The process that started this one may have blocked them."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)


@contextmanager
def blocked() -> Iterator[None]:
    """Block the signals in this thread. A process that it starts in the block gets them blocked."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def take() -> None:
    """Take the signals. Until `deliver_to`, one that stops ends the process: nothing has begun. SIGHUP is kept."""
    _install()
    unblock()


def deliver_to(receiver: Receiver) -> None:
    """Call this for each signal from now on, in the main thread, between any two steps of it. Also for a SIGHUP that was kept."""
    _install()
    _state.receiver = receiver
    if _state.is_reload_due:
        _state.is_reload_due = False
        receiver(signal.SIGHUP)


def release() -> None:
    """Give the signals back to the handlers from before `take`."""
    for each, handler in _state.handlers_before.items():
        signal.signal(each, handler)
    _state.handlers_before.clear()
    _state.receiver = end_before_start


def ignore() -> None:
    """Ignore the signals in this process, which another one ends. Not by SIG_IGN: programs that it executes would inherit that."""
    _restore_in_forks()
    for each in STOP_SIGNALS:
        signal.signal(each, _do_nothing)
        signal.siginterrupt(each, False)
    unblock()


def prepare_exec() -> None:
    """Prepare for the program that replaces this one: a signal waits until it takes it."""
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
        # A closed terminal. The kernel and the shell may both report it.
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
    # Not by an exception: the modules of handlers that are being imported could catch it.
    os._exit(ExitCode.INTERRUPTED if which is signal.SIGINT else ExitCode.OK)


def end_at_once(which: signal.Signals, code: int) -> None:
    """End the process, which has done everything and waits for its threads, by this exit code."""
    if which is not signal.SIGHUP:
        os._exit(code)


def _ignore_at_end() -> None:
    """Ignore what comes while the interpreter ends: it restores the defaults first, and the process would seem to have crashed."""
    for each in STOP_SIGNALS:
        if signal.getsignal(each) is _on_signal:
            signal.signal(each, signal.SIG_IGN)


class _State:
    """What is known of the signals of this process.

    Attributes:
        receiver: is told of each.
        is_installed: whether they were taken.
        has_terminal: whether the process had a terminal then, which is not closed yet.
        is_nohup: whether SIGHUP was ignored then, as `nohup` does: the process is to outlive its terminal.
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
    """Give forks the interpreter's own handlers: multiprocessing, for one, ends its processes by SIGTERM, and at once."""
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
