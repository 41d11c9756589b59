"""The life of every attempt.

It decrypts and checks messages, calls their handler, then encrypts, logs and settles the result.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.handlers import outcome
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.attempt import current_attempt, log_lines
from pgrouse.handlers.attempt.attempt_context import CleanContext, InContext
from pgrouse.handlers.call import HandlerCall, to_call
from pgrouse.handlers.ctx.own_completion import NotCommitted
from pgrouse.handlers.encryption import NoEncryption
from pgrouse.handlers.handler import Handler
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.handlers.suspended import Suspended
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.worker.execution import completion_check
from pgrouse.worker.execution.completion_check import CompletionState
from pgrouse.worker.execution.failure_hooks import FailureHooks
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.execution.run import Run, StopReason
from pgrouse.worker.execution.runners import LoopRunner, Runner
from pgrouse.worker.execution.schema_cache import SchemaCache
from pgrouse.worker.execution.settle_buffer import SettleBuffer
from pgrouse.worker.reporting.attempt_log import log_ends, log_failures
from pgrouse.worker.reporting.log_capture import LogCapture, end_lines
from pgrouse.worker.reporting.metrics_recorder import AttemptResult
from pgrouse.worker.reporting.observer import NO_OBSERVER, NO_SPAN, AttemptSpan, Observer

STILL_OPEN = (
    "the handler has ended, and the transaction that completes its message is still open: "
    "commit that of ctx.complete(), or roll it back, "
    "before the handler ends. "
    "The message ends with that transaction, or is tried again when its lock has expired"
)


class Attempts:
    """Makes attempts, and settles them.

    Args:
        runners: by topic.
        plain_runners: those of the handlers of `is_plain`, by topic.
        schemas: the payload schemas of the topics.
        observer: sees every attempt.
        hooks: called for failures, if there are any.
        capture: captures the log lines of handlers; None = no handler keeps them.

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
        plain_runners: dict[str, LoopRunner],
        schemas: SchemaCache,
        observer: Observer,
        hooks: FailureHooks | None = None,
        capture: LogCapture | None = None,
    ) -> None:
        self.in_flight, self.settle_buffer, self.runtime = in_flight, settle_buffer, runtime
        self.runners, self.schemas, self.observer = runners, schemas, observer
        self.encryption, self._hooks, self._capture = runtime.encryption, hooks, capture
        self._is_encrypted = not isinstance(self.encryption, NoEncryption)
        self._is_observed = observer is not NO_OBSERVER
        self.runs: set[Run] = set()
        self.is_draining = False
        self._copy_context = CleanContext().copy
        # Decided once: the time of each handler is not taken for lines that are not logged.
        self._logs_ends = logging.getLogger().isEnabledFor(logging.DEBUG)
        is_bare = not (self._is_encrypted or self._is_observed or self._logs_ends)
        self._plain_runners = plain_runners if is_bare else {}

    def begin(
        self, handler: Handler, messages: list[Message], free_slot: Callable[[], None], run: Run | None = None
    ) -> Run | None:
        """Call a handler in the current task and in its own context, and settle what ends at once.

        This returns whatever the handler does.

        Args:
            handler: the handler.
            messages: one, or a batch.
            free_slot: called when a thread that runs the handler ends.
            run: the run, if there is one already.

        Returns:
            the run that `finish` takes; None if all messages are settled.
        """
        context = self._copy_context()
        plain = self._plain_runners.get(handler.topic)
        if plain is not None and self.schemas.is_empty and messages[0].timeout_s is None:
            begun = context.run(self._begin_plain, plain, handler, messages, free_slot)
        else:
            begun = context.run(self._begin, handler, messages, free_slot, run)
        if begun is not None:
            begun.context = context
        return begun

    def _begin_plain(
        self, runner: LoopRunner, handler: Handler, messages: list[Message], free_slot: Callable[[], None]
    ) -> Run | None:
        """Do as `_begin`, where nothing is checked before the handler runs, and nothing but its failure is reported."""
        current_attempt.set_messages(messages)
        started: list[Settlement] | Suspended
        try:
            started = runner.start_plain(handler, messages[0])
        except Exception as error:  # noqa: BLE001 - as in _begin
            started = _crashed(handler, messages, error)
        if isinstance(started, list):
            self.settle(started)
            return None
        call = to_call(handler, messages, self.runtime)
        call.was_called, call.suspended = True, started
        return self._go_on(Run(handler, messages, free_slot), call)

    def _begin(
        self, handler: Handler, messages: list[Message], free_slot: Callable[[], None], run: Run | None
    ) -> Run | None:
        current_attempt.set_messages(messages)
        if self._capture is not None and handler.log_bytes:
            self._capture.begin(handler.log_bytes)
        began_at = time.monotonic() if self._logs_ends else 0.0
        span: AttemptSpan = NO_SPAN
        if self._is_observed:
            span = self.observer.attempt(messages, is_batch=handler.batch_options is not None)
        call: HandlerCall | None = None
        ended: list[Settlement] | None = None
        try:
            if self._is_encrypted or not self.schemas.is_empty:
                messages, ended = self._check(messages)
            if messages:
                call = to_call(handler, messages, self.runtime)
                ended = self.runners[handler.topic].start(call)
        except Exception as error:  # noqa: BLE001 - it must not end the worker, nor keep the messages in flight
            ended = _crashed(handler, messages, error)
        if run is not None:
            run.messages = messages
        is_completing = self.in_flight.completing and any(map(self.in_flight.is_completing, messages))
        if ended is not None and not is_completing:
            settled = self._settle_ended(messages, ended) if run is None else self._end(run, ended)
            if self._is_observed:
                span.end(settled, lost=False)
            if self._logs_ends:
                _log_ends(handler, call, settled, began_at)
            return None
        assert call is not None  # noqa: S101 - something runs
        run = run or Run(handler, messages, free_slot)
        run.span, run.began_at, run.ended = span, began_at, ended
        return self._go_on(run, call)

    def _go_on(self, run: Run, call: HandlerCall) -> Run:
        run.begin(call)
        self.runs.add(run)
        return run

    async def finish(self, run: Run) -> None:
        """Wait for the end of a run in its task and context, and settle its messages.

        This returns whatever the handler does.
        """
        await InContext(run.context, self._finish(run))

    async def _finish(self, run: Run) -> None:
        try:
            runner = self.runners[run.handler.topic]
            settlements = await runner.finish(run, self._call(run)) if run.ended is None else run.ended
        except asyncio.CancelledError as error:
            settlements = self._cancelled(run, error)
        except Exception as error:  # noqa: BLE001 - as in begin
            settlements = self.in_flight.held(_crashed(run.handler, run.messages, error))
        if self.in_flight.completing and any(map(self.in_flight.is_completing, run.messages)):
            settlements = await self._confirm(run, settlements)
        settled = self._end(run, settlements)
        run.span.end(settled, lost=run.stop_reason is StopReason.LOST)
        if self._logs_ends:
            _log_ends(run.handler, run.call, settled, run.began_at)

    def end_unstarted(self, run: Run) -> None:
        """The task of a run was cancelled before its first step: `begin` was never called."""
        self._end(run, self._cancelled(run, asyncio.CancelledError()))

    def release(self, messages: Iterable[Message]) -> None:
        """Release messages that were not started."""
        self.settle(self.in_flight.held(Settlement(message, SettleKind.RELEASE) for message in messages))

    def release_running(self) -> None:
        """Release the messages of handlers that ignore their cancellation: the process is about to end."""
        for run in self.runs:
            released = self.in_flight.held(self._call(run).released())
            # The transaction of a handler that ignores its cancellation may hold the row: no settle may wait for it.
            settled = [each for each in released if not self.in_flight.is_completing(each.message)]
            if settled:
                run.context.run(self._keep_lines, settled[0].message)
            self.settle(settled)

    def settle(self, settlements: list[Settlement]) -> list[Settlement]:
        """Settle messages; return how, as it may be stored and logged."""
        if self._is_encrypted:
            settlements = self._encrypt(settlements)
        for each in settlements:
            if each.error is not None or each.warnings:
                self._report_failures(settlements)
                break
        if self.in_flight.progress.notes:
            for each in settlements:
                each.progress = self.in_flight.progress.last(each.message)
        self.settle_buffer.add(settlements)
        if self.is_draining:
            self.settle_buffer.wake_events.set()
        return settlements

    def _encrypt(self, settlements: list[Settlement]) -> list[Settlement]:
        encrypted = self.encryption.encrypt_all(settlements)
        for plain, stored in zip(settlements, encrypted, strict=True):
            if plain is not stored:
                plain.exception = None
        return encrypted

    def _report_failures(self, settlements: list[Settlement]) -> None:
        log_failures(settlements)
        if self._hooks is not None:
            self._hooks.report(settlements)
        for each in settlements:
            each.exception = None  # its frames are not kept until the message is settled

    def _check(self, messages: list[Message]) -> tuple[list[Message], list[Settlement]]:
        """Return the messages that can be decrypted and match their schema.

        If none does, also return how all of them end.
        """
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
            # pgrouse did not stop the handler. Something that the handler left behind cancelled one of pgrouse's waits,
            # so the handler failed.
            return call.to_settlements(error)
        return call.timed_out() if run.stop_reason is StopReason.TIMED_OUT else call.released()

    async def _confirm(self, run: Run, settlements: list[Settlement]) -> list[Settlement]:
        """Return the settlements that remain.

        The messages that `ctx.complete()` may have completed are checked before.
        """
        if run.timer is not None:
            run.timer.cancel()
        messages = [each.message for each in settlements]
        states = await completion_check.find_states(self.runtime.pool, messages)
        by_state = {
            state: [each for each in settlements if states[each.message.id] == state] for state in CompletionState
        }
        call = self._call(run)
        if committed := by_state[CompletionState.SUCCESS]:
            call.complete([each.message for each in committed])
            _log_late(call, self.encryption.encrypt_all(committed))
        self._forget_lost(by_state[CompletionState.LOST])
        self._abandon_open(by_state[CompletionState.OPEN])
        return by_state[CompletionState.HELD]

    def _forget_lost(self, settlements: list[Settlement]) -> None:
        lost = [each.message for each in settlements]
        self.in_flight.remove(lost)
        self.settle_buffer.metrics.record_end(lost, AttemptResult.LOST)
        for each in lost:
            log.warning(events.MESSAGE_LOCK_LOST, message_id=each.id, topic=each.topic, attempt=each.attempt)

    def _abandon_open(self, settlements: list[Settlement]) -> None:
        """Abandon messages whose transactions are open: a settle would wait for them.

        They end with the transaction, or when their locks expire.
        """
        for each in settlements:
            message = each.message
            log.error(events.MESSAGE_COMPLETION_OPEN, message_id=message.id, topic=message.topic, fix=STILL_OPEN)
            self.in_flight.abandon(message)

    def _end(self, run: Run, settlements: list[Settlement]) -> list[Settlement]:
        """Settle the messages of a run, except those that were lost in the meantime."""
        self.runs.discard(run)
        run.is_over = True
        if run.timer is not None:
            run.timer.cancel()
        if run.has_lost:
            settlements = self.in_flight.held(settlements)
        if not settlements and _has_completed(run):
            self._keep_lines(run.messages[0])
        return self._settle_ended(run.messages, settlements)

    def _settle_ended(self, messages: list[Message], settlements: list[Settlement]) -> list[Settlement]:
        if settlements:
            self._keep_lines(settlements[0].message)
        settled = self.settle(settlements)
        if len(settled) < len(messages):
            # Lost, or completed by the handler.
            ids = {each.message.id for each in settled}
            self.in_flight.remove(message for message in messages if message.id not in ids)
        return settled

    def _keep_lines(self, message: Message) -> None:
        """Keep the log lines of the attempt in whose context this is called, if it captures them."""
        if self._capture is None:
            return
        logged = end_lines(log_lines.current_lines(), message)
        if logged is not None and self.encryption.keeps_text(message):
            self.settle_buffer.add_log(logged)


def _has_completed(run: Run) -> bool:
    """Return whether the handler has completed its messages itself, or ack_first has before it."""
    if run.call is None:
        return False
    return run.call.committed or (run.handler.rules.policy is AckPolicy.ACK_FIRST and bool(run.call.messages))


def _log_late(call: HandlerCall, settlements: list[Settlement]) -> None:
    """Log why a handler failed whose messages are completed."""
    reasons = {each.error for each in settlements if each.error and each.error_type != NotCommitted.__qualname__}
    for reason in reasons:
        call.log_after_completion(reason)


def _crashed(handler: Handler, messages: list[Message], error: Exception) -> list[Settlement]:
    """Return how messages end after a bug of pgrouse, or an outcome that cannot be formatted."""
    first = messages[0]
    name = "handler" if handler.batch_options is None else "batch"
    log.error(events.LOOP_CRASHED, loop=name, message_id=first.id, topic=first.topic, exc_info=error)
    described, kind = outcome.describe(error), type(error).__qualname__
    return [Settlement(each, SettleKind.RETRY, error=described, error_type=kind) for each in messages]


def _log_ends(handler: Handler, call: HandlerCall | None, settled: list[Settlement], began_at: float) -> None:
    is_first = handler.rules.policy is AckPolicy.ACK_FIRST
    completed = [] if call is None else call.messages if is_first else [message for message, _ in call.completed()]
    log_ends(settled, completed, time.monotonic() - began_at)
