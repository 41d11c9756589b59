"""The life of every attempt: messages are decrypted and checked, their handler is called, and what ended is encrypted, logged and settled."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import structlog

from pgrouse import events
from pgrouse.client.message import Message
from pgrouse.client.settlement import SettleKind, Settlement
from pgrouse.handlers import outcome
from pgrouse.handlers.call import HandlerCall, to_call
from pgrouse.handlers.encryption import NoEncryption
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.telemetry import trace_context
from pgrouse.worker.in_flight import InFlight
from pgrouse.worker.observer import Observer
from pgrouse.worker.run import Run, StopReason
from pgrouse.worker.runners import Runner
from pgrouse.worker.schema_cache import SchemaCache
from pgrouse.worker.settle_buffer import SettleBuffer

log = structlog.get_logger()

FAILURE_EVENTS = {
    SettleKind.COMPLETE: events.MESSAGE_OUTPUT_DROPPED,
    SettleKind.RETRY: events.ATTEMPT_FAILED,
    SettleKind.EXPIRE: events.ATTEMPT_TIMED_OUT,
    SettleKind.REJECT: events.MESSAGE_REJECTED,
    SettleKind.FAIL: events.MESSAGE_FAILED,
}


class Attempts:
    """Makes attempts, and settles them.

    Args:
        runners: by topic.
        schemas: the payload schemas of the topics.
        observer: sees every attempt.

    Attributes:
        runs: what runs now.
        is_draining: whether a shutdown waits for the runs to end.
    """

    def __init__(
        self,
        in_flight: InFlight,
        settle_buffer: SettleBuffer,
        runtime: HandlerRuntime,
        runners: dict[str, Runner],
        schemas: SchemaCache,
        observer: Observer,
    ) -> None:
        self.in_flight, self.settle_buffer, self.runtime = in_flight, settle_buffer, runtime
        self.runners, self.schemas, self.observer = runners, schemas, observer
        self.encryption = runtime.encryption
        self._is_encrypted = not isinstance(self.encryption, NoEncryption)
        self.runs: set[Run] = set()
        self.is_draining = False

    def begin(
        self, handler: Handler, messages: list[Message], free_slot: Callable[[], None], run: Run | None = None
    ) -> Run | None:
        """Call a handler in the current task, and settle what ends at once. Whatever the handler does, this returns.

        Args:
            handler: the handler.
            messages: one, or a batch.
            free_slot: called when a thread that runs the handler ends.
            run: the run, if there is one already.

        Returns:
            what `finish` takes; None if all messages are settled.
        """
        span = self.observer.attempt(messages, is_batch=handler.batch_options is not None)
        ended: list[Settlement] | None = None
        try:
            if self._is_encrypted or not self.schemas.is_empty:
                messages, ended = self._check(messages)
            if messages:
                call = to_call(handler, messages, self.runtime)
                ended = self.runners[handler.topic].start(call)
        except Exception as error:  # noqa: BLE001 - it must cost neither the worker, nor keep the messages in flight for ever
            ended = _crashed(handler, messages, error)
        if run is not None:
            run.messages = messages
        if ended is not None:
            settled = self._settle_ended(messages, ended) if run is None else self._end(run, ended)
            span.end(settled, lost=False)
            return None
        run = run or Run(handler, messages, free_slot)
        run.begin(call, span)
        self.runs.add(run)
        return run

    async def finish(self, run: Run) -> None:
        """Wait for the end of a run in its task, and settle its messages. Whatever the handler does, this returns."""
        try:
            settlements = await self.runners[run.handler.topic].finish(run, self._call(run))
        except asyncio.CancelledError as error:
            settlements = self._cancelled(run, error)
        except Exception as error:  # noqa: BLE001 - as in begin
            settlements = self.in_flight.held(_crashed(run.handler, run.messages, error))
        run.span.end(self._end(run, settlements), lost=run.stop_reason is StopReason.LOST)

    def end_unstarted(self, run: Run) -> None:
        """The task of a run was cancelled before its first step: `begin` was never called."""
        self._end(run, self._cancelled(run, asyncio.CancelledError()))

    def release(self, messages: Iterable[Message]) -> None:
        """Release messages that were not started."""
        self.settle(self.in_flight.held(Settlement(message, SettleKind.RELEASE) for message in messages))

    def release_running(self) -> None:
        """Release the messages of handlers that ignore their cancellation: the process is about to end."""
        for run in self.runs:
            self.settle(self.in_flight.held(self._call(run).released()))

    def settle(self, settlements: list[Settlement]) -> list[Settlement]:
        """Settle messages; return how, as it may be stored and logged."""
        if self._is_encrypted:
            settlements = self.encryption.encrypt_all(settlements)
        for each in settlements:
            if each.error is not None or each.warnings:
                _log(settlements)
                break
        if self.in_flight.progress:
            for each in settlements:
                each.progress = self.in_flight.progress.last(each.message)
        self.settle_buffer.add(*settlements)
        return settlements

    def _check(self, messages: list[Message]) -> tuple[list[Message], list[Settlement]]:
        """Return those of the messages that can be decrypted and match their schema; if none does, how they all end."""
        readable, unreadable = self.encryption.decrypt_all(messages)
        valid, invalid = self.schemas.check(readable)
        refused = [*unreadable, *invalid] if unreadable or invalid else []
        if refused and valid:
            self.settle(refused)
            return valid, []
        return valid, refused

    def _call(self, run: Run) -> HandlerCall:
        return run.call or to_call(run.handler, run.messages, self.runtime)

    def _cancelled(self, run: Run, error: asyncio.CancelledError) -> list[Settlement]:
        """Return how the messages of a cancelled run end."""
        call = self._call(run)
        if run.stop_reason is None:
            # pgrouse did not stop it: what a handler left behind has hit a wait of ours, and it failed.
            return call.to_settlements(error)
        return call.timed_out() if run.stop_reason is StopReason.TIMED_OUT else call.released()

    def _end(self, run: Run, settlements: list[Settlement]) -> list[Settlement]:
        """Settle the messages of a run, except those that were lost meanwhile."""
        self.runs.discard(run)
        run.is_over = True
        if run.timer is not None:
            run.timer.cancel()
        return self._settle_ended(run.messages, self.in_flight.held(settlements) if run.has_lost else settlements)

    def _settle_ended(self, messages: list[Message], settlements: list[Settlement]) -> list[Settlement]:
        settled = self.settle(settlements)
        if len(settled) < len(messages):
            # Lost, or completed by the handler.
            ids = {each.message.id for each in settled}
            self.in_flight.remove(message for message in messages if message.id not in ids)
        if self.is_draining:
            self.settle_buffer.wake_events.set()
        return settled


def _crashed(handler: Handler, messages: list[Message], error: Exception) -> list[Settlement]:
    """Return how messages end after a bug of pgrouse, or an outcome that cannot be formatted."""
    first = messages[0]
    name = "handler" if handler.batch_options is None else "batch"
    log.error(events.LOOP_CRASHED, loop=name, message_id=first.id, topic=first.topic, exc_info=error)
    described, kind = outcome.describe(error), type(error).__qualname__
    return [Settlement(each, SettleKind.RETRY, error=described, error_type=kind) for each in messages]


def _log(settlements: list[Settlement]) -> None:
    """Log the failures and warnings of attempts. What is the same for many messages of a batch is logged once, with the first of them."""
    failures: Counter[tuple[SettleKind, str | None]] = Counter(
        (each.kind, each.error) for each in settlements if each.error is not None
    )
    warnings = Counter(warning for each in settlements for warning in each.warnings)
    for each in settlements:
        if count := failures.pop((each.kind, each.error), 0):
            # The last line of an error, never a payload.
            reason = (each.error or "").rstrip().rpartition("\n")[2]
            log.warning(FAILURE_EVENTS[each.kind], **_log_keys(each, reason, count))
        for warning in each.warnings:
            if count := warnings.pop(warning, 0):
                event, reason = warning
                log.error(event, **_log_keys(each, reason, count))


def _log_keys(settlement: Settlement, reason: str, count: int) -> dict[str, Any]:
    message = settlement.message
    keys = {"message_id": message.id, "topic": message.topic, "attempt": message.attempt, "reason": reason}
    return {**keys, **({"messages": count} if count > 1 else {}), **trace_context.log_keys()}
