"""The three ways to run a handler: on the event loop, in a thread, in a child process.

Each runs single messages and batches.

No function here keeps an exception in a variable after its `except` block. The exception has the function's frame in
its traceback, so it would keep itself alive, and everything that the handler's frames hold, until the garbage collector
runs.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import CoroutineType
from typing import Protocol

from pgrouse.client.calls.event import SavedEvent
from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import Settlement
from pgrouse.handlers.attempt.log_lines import current_lines
from pgrouse.handlers.call import HandlerCall
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.outcome import EventWait, Outcome, describe
from pgrouse.handlers.suspended import Suspended, wait_for
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.worker.child.child_link import ChildDied
from pgrouse.worker.child.child_process import ChildProcesses
from pgrouse.worker.child.django_connections import DJANGO, clean_up_after_coroutine, fresh_connections
from pgrouse.worker.execution.daemon_runtime import DaemonRuntime
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.execution.run import Run


class Runner(Protocol):
    """Runs one handler."""

    def start(self, call: HandlerCall) -> list[Settlement] | None:
        """Begin a call. Return how its messages end, or None if `finish` decides that."""

    async def finish(self, run: Run, call: HandlerCall) -> list[Settlement]:
        """Make the call of a run, or wait for its end, in the same task; return how its messages end.

        Raises:
            CancelledError: the run was stopped.
        """


class LoopRunner:
    """Runs an async handler on the event loop.

    Args:
        record_run: records how long a call took, in seconds.
    """

    def __init__(self, in_flight: InFlight, record_run: Callable[[float], None]) -> None:
        self._in_flight, self._record_run = in_flight, record_run

    def start(self, call: HandlerCall) -> list[Settlement] | None:
        """Run the handler until it ends or waits: a handler that does not wait needs no run and no timer."""
        began = time.monotonic()
        if call.limit_s is not None:
            self._in_flight.mark_started(call.messages, began)
        try:
            coroutine = call.call()
        except BaseException as error:  # noqa: BLE001 - sys.exit in a model fails its message, not the daemon
            return self._end(call, began, error)
        if not call.was_called:
            return self._end(call, began, None)
        if type(coroutine) is not CoroutineType:
            # Decorated async functions may return any awaitable.
            coroutine = wait_for(coroutine)
        try:
            call.suspended = Suspended(coroutine, coroutine.send(None), began)
        except StopIteration as end:
            returned = end.value
        except BaseException as error:  # noqa: BLE001 - nor does sys.exit in a handler
            return self._end(call, began, error)
        else:
            return None
        # After the block: an exception that is raised here must not have the StopIteration as its cause.
        self._record(began)
        return call.to_settlements(returned)

    def start_plain(self, handler: Handler, message: Message) -> list[Settlement] | Suspended:
        """Do as `start`, in half of the time, for a handler of `is_plain`, and a message without a timeout.

        No call is made before the handler waits: the payload is all that the handler gets.
        """
        began = time.monotonic()
        try:
            payload = handler.decode(message)
        except BaseException as error:  # noqa: BLE001 - as in start
            return [handler.rules.to_settlement(message, error)]
        try:
            coroutine = handler.function(payload)
            if type(coroutine) is not CoroutineType:
                coroutine = wait_for(coroutine)
        except BaseException as error:  # noqa: BLE001 - as in start
            self._record(began)
            return [handler.rules.to_settlement(message, error)]
        try:
            return Suspended(coroutine, coroutine.send(None), began)
        except StopIteration as end:
            returned = end.value
        except BaseException as error:  # noqa: BLE001 - as in start
            self._record(began)
            return [handler.rules.to_settlement(message, error)]
        self._record(began)
        return [handler.rules.to_settlement(message, returned)]

    async def finish(self, run: Run, call: HandlerCall) -> list[Settlement]:
        """Continue a handler that waits."""
        suspended = call.suspended
        began = suspended.began
        if call.limit_s is not None:
            run.start_timer(began + call.limit_s - time.monotonic())
        try:
            returned = await suspended
        except BaseException as error:
            if _is_being_closed():
                raise
            if run.stop_reason is not None and not isinstance(error, Outcome | EventWait):
                # An exception that the stop caused is not the handler's failure.
                self._record(began)
                raise asyncio.CancelledError from error
            # The handler cancelled itself.
            return self._end(call, began, error)
        return self._end(call, began, returned)

    def _end(self, call: HandlerCall, began: float, returned: object) -> list[Settlement]:
        if call.was_called:
            self._record(began)
        return call.to_settlements(returned)

    def _record(self, began: float) -> None:
        self._record_run(time.monotonic() - began)
        if DJANGO in sys.modules:
            clean_up_after_coroutine()


class HandlerThreads:
    """The threads of sync handlers.

    Attributes:
        busy: how many run a handler.
    """

    def __init__(self, size: int) -> None:
        self.busy = 0
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="handler")
        self._ended: deque[tuple[ThreadCall, list[Settlement] | BaseException]] = deque()
        self._is_reporting = False

    async def run(self, function: Callable[[], list[Settlement]], on_end: Callable[[], None]) -> list[Settlement]:
        """Call a function in a thread, with a copy of the current context: it sees the span of its attempt.

        The function does not run in that context itself: a stop of the run enters that context while the thread still
        runs.
        """
        loop = asyncio.get_running_loop()
        thread = ThreadCall(loop.create_future(), on_end)
        submitted = self._pool.submit(self._call, loop, thread, partial(contextvars.copy_context().run, function))
        self.busy += 1
        try:
            return await thread.future
        except asyncio.CancelledError:
            if submitted.cancel():  # it still waited for a thread
                self._end(thread)
            raise
        finally:
            del thread  # its future holds the exception, whose traceback holds this frame

    def shutdown(self) -> None:
        """Start no more threads. A thread that runs cannot be stopped."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _call(
        self, loop: asyncio.AbstractEventLoop, thread: ThreadCall, function: Callable[[], list[Settlement]]
    ) -> None:
        """Call a function. Runs in the thread."""
        try:
            self._ended.append((thread, function()))
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
            self._ended.append((thread, error))
        # One call reports all that end before the loop runs it: waking the loop takes longer than a short handler.
        if not self._is_reporting:
            self._is_reporting = True
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._report)

    def _report(self) -> None:
        """Report the calls that have ended. Runs on the loop."""
        self._is_reporting = False
        while self._ended:
            thread, result = self._ended.popleft()
            self._end(thread)
            if thread.future.cancelled():
                continue
            if isinstance(result, BaseException):
                thread.future.set_exception(result)
            else:
                thread.future.set_result(result)

    def _end(self, thread: ThreadCall) -> None:
        self.busy -= 1
        thread.on_end()


@dataclass(frozen=True, slots=True)
class ThreadCall:
    """A call in a thread.

    Attributes:
        future: its result; cancelled when the run is stopped.
        on_end: called on the loop when the thread has ended, in either case.
    """

    future: asyncio.Future[list[Settlement]]
    on_end: Callable[[], None]


class ThreadRunner:
    """Runs a sync handler in a thread.

    Args:
        record_run: records how long a call took, in seconds; thread-safe.
    """

    def __init__(self, threads: HandlerThreads, in_flight: InFlight, record_run: Callable[[float], None]) -> None:
        self._threads, self._in_flight, self._record_run = threads, in_flight, record_run

    def start(self, call: HandlerCall) -> None:
        """Do nothing: `finish` makes the call."""

    async def finish(self, run: Run, call: HandlerCall) -> list[Settlement]:
        """Call the handler in a thread; it may have to wait for one first."""
        start_timeout: Callable[[], object] | None = None
        if (limit_s := call.limit_s) is not None:
            loop = asyncio.get_running_loop()
            start_timeout = partial(loop.call_soon_threadsafe, run.start_timeout, limit_s, self._in_flight)
        # A thread cannot be stopped: the slot stays in use until it ends by itself, even if the run has timed out.
        run.has_thread = True
        return await self._threads.run(partial(self._call, call, start_timeout), run.free_slot)

    def _call(self, call: HandlerCall, start_timeout: Callable[[], object] | None) -> list[Settlement]:
        if start_timeout is not None:
            start_timeout()
        began = time.monotonic()
        try:
            with fresh_connections():
                returned = call.call()
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails its messages, not the thread
            return self._end(call, began, error)
        return self._end(call, began, returned)

    def _end(self, call: HandlerCall, began: float, returned: object) -> list[Settlement]:
        if call.was_called:
            self._record_run(time.monotonic() - began)
        return call.to_settlements(returned)


class ChildRunner:
    """Runs a handler in a child process.

    Args:
        record_run: records how long a call took, in seconds.
    """

    def __init__(
        self,
        children: ChildProcesses,
        runtime: DaemonRuntime,
        in_flight: InFlight,
        record_run: Callable[[float], None],
    ) -> None:
        self._children, self._runtime, self._in_flight, self._record_run = children, runtime, in_flight, record_run

    def start(self, call: HandlerCall) -> None:
        """Do nothing: `finish` makes the call."""

    async def finish(self, run: Run, call: HandlerCall) -> list[Settlement]:
        """Call the handler in a child, whose timeout starts when the child starts the handler."""
        events = await self._events(call.messages)
        began = time.monotonic()
        ran_s: float | None
        try:
            settlements, ran_s, is_completing, lines = await self._children.run(call.messages, call.limit_s, events)
            if is_completing:
                self._in_flight.mark_completing(call.messages)
            if lines is not None and (captured := current_lines()) is not None:
                captured.add_of_child(*lines)
        except Exception as error:  # noqa: BLE001 - a timeout, a death, or anything that cannot be pickled
            settlements, ran_s = _without_result(call, error), time.monotonic() - began
        if ran_s is not None:
            self._record_run(ran_s)
        return settlements

    async def _events(self, messages: list[Message]) -> list[SavedEvent]:
        """Return the events of a message: a child cannot ask for them.

        Only a message that has run before may have waited. If it has got an event before its first wait, it waits for a
        moment, and gets that in its second run.
        """
        first, *others = messages
        return [] if others or first.runs <= 1 else await self._runtime.load_events(first)


def _without_result(call: HandlerCall, error: Exception) -> list[Settlement]:
    """Return how messages end if the child returned nothing for them."""
    match error:
        case TimeoutError():
            return call.timed_out()
        case ChildDied():
            log.warning(events.CHILD_DIED, **call.log_keys(), exit_code=error.exit_code)
            return call.died(error, str(error))
        case _:
            return call.died(error, describe(error))


class CompleteFirstRunner:
    """Completes messages, then runs their handler, whose outcome is only logged (ack_first).

    Args:
        runner: runs the handler.
    """

    def __init__(self, runner: Runner, runtime: DaemonRuntime) -> None:
        self._runner, self._runtime = runner, runtime

    def start(self, call: HandlerCall) -> None:
        """Do nothing: `finish` makes the call."""

    async def finish(self, run: Run, call: HandlerCall) -> list[Settlement]:
        """Complete the messages, and call the handler with those that were not lost. Nothing remains to settle."""
        lost = await self._runtime.complete_first(call.messages)
        for each in call.messages:
            if each.id in lost:
                log.warning(events.MESSAGE_LOCK_LOST, message_id=each.id, topic=each.topic, attempt=each.attempt)
        call.start_completed(lost)
        if not call.messages:
            return []
        try:
            started = self._runner.start(call)
            settlements = started if isinstance(started, list) else await self._runner.finish(run, call)
        except asyncio.CancelledError:
            reason = run.stop_reason.value if run.stop_reason else "cancelled"
            call.log_after_completion(f"the handler was stopped: {reason}")
        else:
            self._log_error(call, self._runtime.encryption.encrypt_all(settlements))
        return []

    def _log_error(self, call: HandlerCall, settlements: list[Settlement]) -> None:
        error = next((each.error for each in settlements if each.error is not None), None)
        for each in settlements:
            each.exception = None
        if error is not None:
            call.log_after_completion(error)


def is_plain(handler: Handler) -> bool:
    """Whether a handler is called message by message, with nothing but the payload, and its log lines are not kept."""
    return handler.batch_options is None and handler.arguments == 1 and not handler.log_bytes


def _is_being_closed() -> bool:
    """Whether the running coroutine is being closed (no task runs it).

    The other case is a handler that raised GeneratorExit itself.
    """
    return asyncio.current_task() is None
