"""Handlers in child processes (`isolation = "process"`).

They may crash, leak memory, block or hang without affecting anything else.

A child is a new interpreter, not a fork: it inherits only one socket from the daemon, and imports the handler's module,
not the program that the worker runs in. It ends when the daemon ends. It has no
connection of the worker: its context offers no transaction, and the daemon settles for it. A child whose call times
out, or whose message is lost, is killed. The reports of a running handler (progress, lock extensions) are sent to the
daemon through the socket, as datagrams: children share it without a lock, and a child that is killed while sending
leaves nothing inconsistent.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext, suppress
from datetime import timedelta
from functools import partial
from itertools import islice
from time import monotonic
from typing import Any, NamedTuple

from pgrouse.client.calls.event import SavedEvent
from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import Settlement
from pgrouse.config import config
from pgrouse.crypto.envelope import ENCRYPTED_BY
from pgrouse.database import schema_name
from pgrouse.database.schema_name import SchemaName
from pgrouse.handlers.attempt import current_attempt
from pgrouse.handlers.attempt.attempt_context import CleanContext
from pgrouse.handlers.attempt.log_lines import current_lines
from pgrouse.handlers.call import HandlerCall, to_call
from pgrouse.handlers.declaration import loader
from pgrouse.handlers.encryption import NoEncryption
from pgrouse.handlers.event_loop import DONE
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.runtime import AsyncPool, BlockingPool
from pgrouse.logging import log
from pgrouse.telemetry import trace_context
from pgrouse.worker.child import django_connections
from pgrouse.worker.child.child_lifespan import ChildLifespan
from pgrouse.worker.child.child_pool import ChildPool
from pgrouse.worker.child.django_connections import clean_up_after_coroutine, fresh_connections
from pgrouse.worker.reporting.log_capture import LogCapture

PR_SET_PDEATHSIG = 1

# How long a child waits for a daemon that does not read its reports.
SEND_S = 0.2
MAX_REPORTS = 100
DATAGRAM = 65_536

NO_CONNECTION = (
    'ctx.transaction(), ctx.publish(), ctx.step() and ctx.signal_url() are not available with isolation = "process", '
    "which has no connection of the worker: "
    "run the handler in a thread, or open a connection of your own, and give it to ctx.complete() and pgrouse.publish"
)

NO_KEY = (
    "ctx.complete(): the topic is encrypted, and a child process has no keys: "
    "complete the message without an output, or run the handler "
    "in a thread"
)

_handler: Handler | None = None
_is_encrypted = False
_to_daemon: socket.socket | None = None
_lifespan: ChildLifespan | None = None
_capture: LogCapture | None = None
_clean_context = CleanContext()


class ChildEncryption(NoEncryption):
    """The encryption in a child process, which has no keys.

    The daemon decrypts messages before, and encrypts their ends.

    Args:
        is_encrypted: whether the daemon encrypts the topic.
    """

    def __init__(self, is_encrypted: bool) -> None:
        self._is_encrypted = is_encrypted

    def encrypt_output(self, message: Message, text: str | None) -> str | None:
        """Return the output, if it may be stored as it is.

        Raises:
            RuntimeError: it may not.
        """
        if text is not None and (self._is_encrypted or ENCRYPTED_BY in (message.headers or "")):
            raise RuntimeError(NO_KEY)
        return text


class ChildRuntime:
    """The runtime of a handler in a child process. It cannot know what happens to its message in the daemon.

    Args:
        is_encrypted: whether the daemon encrypts the topic.
        given_events: the events of the message that the daemon knows.

    Attributes:
        is_completing: whether the handler has called `ctx.complete()`.
    """

    stopping = False
    web_url = None

    def __init__(self, is_encrypted: bool, given_events: Sequence[SavedEvent]) -> None:
        self.encryption, self.given_events = ChildEncryption(is_encrypted), given_events
        self.is_completing = False

    @property
    def resources(self) -> Any:
        """Return what the lifespan of this process yielded."""
        return None if _lifespan is None else _lifespan.start()

    @property
    def pool(self) -> AsyncPool:
        """Connections are not available here."""
        raise RuntimeError(NO_CONNECTION)

    @property
    def blocking_pool(self) -> BlockingPool:
        """Connections are not available here."""
        raise RuntimeError(NO_CONNECTION)

    def holds(self, message: Message) -> bool:
        """Assume so: a child whose message is lost is killed."""
        return True

    def cancelled(self, message: Message) -> bool:
        """Assume not, for the same reason."""
        return False

    def note_progress(self, message: Message, text: str) -> None:
        """Report the progress to the daemon."""
        _report(message, progress=text)

    def last_progress(self, message: Message) -> None:
        """Return None: only the daemon stores progress."""

    def extend(self, message: Message, lock_duration: timedelta) -> Awaitable[None]:
        """Ask the daemon to extend the lock."""
        _report(message, extend_s=lock_duration.total_seconds())
        return DONE

    def mark_completing(self, *messages: Message) -> None:
        """Tell the daemon: it may see the end of these messages before the handler ends."""
        self.is_completing = True
        for message in messages:
            _report(message, completing=True)

    def mark_not_completed(self, *messages: Message) -> None:
        """Do nothing: a child has no transaction of the daemon."""

    def completed(self, *messages: Message) -> None:
        """Do nothing: only the daemon counts."""


class ChildResult(NamedTuple):
    """What a child returns.

    Attributes:
        settlements: how the messages end.
        ran_s: how long the handler ran, in seconds; None = it was not called.
        is_completing: whether it has called `ctx.complete()`.
        lines: what it logged, and how many lines before that are left out; None = nothing is kept.
    """

    settlements: list[Settlement]
    ran_s: float | None
    is_completing: bool
    lines: tuple[str, int] | None


class ChildProcesses:
    """The child processes of one topic: each starts when a message needs it, and processes many messages.

    Args:
        otel: the section `[otel]`: whether the handlers' spans are exported from the children.
        without: environment variables that are removed in the children.
        log_settings: the section `[log]`, for what handlers log in the children; None = logging is not set up.
        is_encrypted: whether the daemon encrypts the topic.
        schema: the queue that publishes of the handlers mean.
    """

    def __init__(
        self,
        topic: str,
        chosen: config.TopicSettings,
        rules: config.HandlersSettings,
        otel: config.OtelSettings | None = None,
        without: tuple[str, ...] = (),
        log_settings: config.LogSettings | None = None,
        *,
        is_encrypted: bool = False,
        schema: SchemaName = schema_name.DEFAULT,
    ) -> None:
        self._ours, self._theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._ours.setblocking(False)
        initialize = partial(
            _initialize,
            topic,
            chosen,
            rules,
            os.getpid(),
            self._theirs.fileno(),
            otel,
            without,
            log_settings,
            is_encrypted,
            django_connections.is_set_up(),
            schema,
        )
        self._pool = ChildPool(initialize, (self._theirs.fileno(),))

    async def run(self, messages: list[Message], limit_s: float | None, events: Sequence[SavedEvent]) -> ChildResult:
        """Run the handler for these messages in a child; its timeout starts when a child starts it.

        events: those of the message, for `ctx.wait_for_event`.
        """
        ended: ChildResult = await self._pool.call(
            run_handler, messages, trace_context.current(), events, limit_s=limit_s
        )
        return ended

    def close(self) -> None:
        """Kill all child processes."""
        self._pool.close()

    def fileno(self) -> int:
        """Return the descriptor that is readable when a child has sent a report."""
        return self._ours.fileno()

    def receive(self) -> list[dict[str, Any]]:
        """Return the reports of the children.

        Each has a message's id and claim_id, and either a progress, a lock extension, or that the handler completes it.
        """
        return list(islice(self._received(), MAX_REPORTS))

    def _received(self) -> Iterator[dict[str, Any]]:
        with suppress(BlockingIOError):
            while True:
                yield json.loads(self._ours.recv(DATAGRAM))


def _report(message: Message, **what: Any) -> None:
    """Send a report to the daemon; drop it if the daemon does not read for SEND_S."""
    assert _to_daemon is not None  # noqa: S101 - set by `_initialize`
    with suppress(OSError):
        _to_daemon.send(json.dumps({"id": message.id, "claim_id": message.claim_id, **what}).encode())


def run_handler(messages: list[Message], trace: dict[str, str], events: Sequence[SavedEvent]) -> ChildResult:
    """Run the handler for these messages with these events, in the child and within this trace.

    Return the same as `ChildProcesses.run`.
    """
    assert _handler is not None  # noqa: S101 - set by `_initialize`
    with nullcontext() if _lifespan is None else _lifespan.busy():
        return _clean_context.copy().run(_call_handler, _handler, messages, trace, events)


def _call_handler(
    handler: Handler, messages: list[Message], trace: dict[str, str], events: Sequence[SavedEvent]
) -> ChildResult:
    current_attempt.set_messages(messages)
    if _capture is not None:
        _capture.begin(handler.log_bytes)
    runtime = ChildRuntime(_is_encrypted, events)
    call = to_call(handler, messages, runtime)
    with trace_context.use_context(trace):
        began = monotonic()
        try:
            returned = _returned_by(call)
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails its messages, not the child
            return _to_result(call, runtime, began, error)
        return _to_result(call, runtime, began, returned)


def _returned_by(call: HandlerCall) -> object:
    if _lifespan is not None:
        _lifespan.start()
    with fresh_connections():
        returned = call.call()
        return _run_coroutine(returned) if hasattr(returned, "__await__") else returned


def _to_result(call: HandlerCall, runtime: ChildRuntime, began: float, returned: object) -> ChildResult:
    ran_s = monotonic() - began if call.was_called else None
    settlements = call.to_settlements(returned)
    for each in settlements:
        each.exception = None  # it may not be picklable
    captured = current_lines()
    lines = None if captured is None else captured.close()
    return ChildResult(settlements, ran_s, runtime.is_completing, lines)


def _run_coroutine(coroutine: Any) -> object:
    ended = _end_of(coroutine)
    try:
        return asyncio.run(ended) if _lifespan is None else _lifespan.run(ended)
    finally:
        clean_up_after_coroutine()


async def _end_of(coroutine: Any) -> object:
    """Return what a coroutine returns or raises.

    The loop must not raise it: the loop's frames would keep the exception alive.
    """
    try:
        return await coroutine
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails its messages, not the child
        return error


def _initialize(
    topic: str,
    chosen: config.TopicSettings,
    rules: config.HandlersSettings,
    daemon_pid: int,
    to_daemon: int,
    otel: config.OtelSettings | None,
    without: tuple[str, ...],
    log_settings: config.LogSettings | None,
    is_encrypted: bool,
    has_django: bool,
    schema: SchemaName,
) -> Callable[[], None] | None:
    """Prepare the process for its handler; return what ends its lifespan, if it has one."""
    # A child runs one handler.
    global _handler, _to_daemon, _lifespan, _is_encrypted, _clean_context, _capture  # noqa: PLW0603
    _is_encrypted = is_encrypted
    schema_name.set_default(schema)
    os.set_inheritable(to_daemon, False)
    _to_daemon = socket.socket(fileno=to_daemon)
    _to_daemon.settimeout(SEND_S)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # The daemon may have died before this line; the kernel does not report that.
    if os.getppid() != daemon_pid:
        os._exit(1)
    for variable in without:
        os.environ.pop(variable, None)
    if log_settings is not None:
        log.setup_child(log_settings)
    if otel is not None and otel.enabled:
        from pgrouse.telemetry import providers  # noqa: PLC0415 - extra otel

        providers.set_providers(otel, f"{topic}:{os.getpid()}")
    if has_django:
        django_connections.set_up()
    _handler = loader.find_handler(topic, chosen, rules)
    if _handler.log_bytes:
        _capture = LogCapture(log.secrets_of_environment())
        _capture.start()
    _clean_context = CleanContext()  # with what the import has set
    if (function := loader.find_lifespan(rules)) is not None:
        _lifespan = ChildLifespan(
            f"handlers.lifespan: {rules.lifespan}", function, rules.startup_timeout.total_seconds()
        )
        _lifespan.try_start()
    return None if _lifespan is None else _lifespan.end
