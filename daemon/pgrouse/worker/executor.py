"""The executor: `concurrency` workers on the event loop, each of which takes a message, runs its handler, and passes on the settlement.

A worker is a task of its own, so that timeouts and cancellation in a handler affect that handler only. There is no task per message:
handlers that never wait are run one after the other by the same worker, and the next worker is woken only when a handler waits.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from datetime import timedelta
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import structlog
from pebble import ProcessExpired

from pgrouse import events
from pgrouse.client.message import Message
from pgrouse.client.settlement import SettleKind, Settlement
from pgrouse.handlers import outcome
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.context import Context
from pgrouse.handlers.handler import Handler, Mode
from pgrouse.handlers.publish_tracker import check_awaited, tracker_of
from pgrouse.worker import child_process
from pgrouse.worker.batch_runner import BatchRunner
from pgrouse.worker.claim_planner import Capacity
from pgrouse.worker.django_connections import clean_up_after_coroutine, fresh_connections
from pgrouse.worker.metrics_recorder import AttemptResult, MetricsRecorder
from pgrouse.worker.schema_cache import SchemaCache
from pgrouse.worker.stop_reason import StopReason, is_being_closed

if TYPE_CHECKING:
    from pgrouse.config import config
    from pgrouse.worker.daemon_runtime import DaemonRuntime
    from pgrouse.worker.in_flight import InFlight
    from pgrouse.worker.message_crypto import MessageCrypto
    from pgrouse.worker.settle_buffer import SettleBuffer

log = structlog.get_logger()

# A worker that has run handlers for this long without waiting yields to everything else.
TURN_S = 0.005
TOPIC = attrgetter("topic")
Runner = Callable[[Handler, Message], Coroutine[Any, Any, Settlement | None]]
CLOSE_S = 2.0


class HandlerExecutor:
    """Runs the handlers of one daemon.

    Args:
        handlers: by topic.
        settings: the section `[worker]`.
        children: by topic, where isolation = "process".
        on_capacity: called when a topic that was full has a free slot again.
        schemas: the payload schemas of the topics; nothing unless given.
        message_crypto: decrypts what handlers get, and encrypts what they return; nothing unless given.
    """

    threads_type: Callable[..., ThreadPoolExecutor] = ThreadPoolExecutor
    batch_runner_type: Callable[..., BatchRunner] = BatchRunner

    def __init__(
        self,
        handlers: dict[str, Handler],
        settings: config.WorkerSettings,
        in_flight: InFlight,
        settle_buffer: SettleBuffer,
        runtime: DaemonRuntime,
        children: dict[str, child_process.ChildProcesses],
        on_capacity: Callable[[], None],
        schemas: SchemaCache | None = None,
        message_crypto: MessageCrypto | None = None,
    ) -> None:
        self.handlers, self.settings, self.in_flight, self.settle_buffer, self.runtime = (
            handlers,
            settings,
            in_flight,
            settle_buffer,
            runtime,
        )
        self.children, self.metrics = children, settle_buffer.metrics
        self.on_capacity = on_capacity
        self.schemas = SchemaCache() if schemas is None else schemas
        self.message_crypto = message_crypto
        self.threads = self.threads_type(settings.threads, thread_name_prefix="handler")
        self.waiting: deque[Message] = deque()
        self._running: dict[tuple[int, int], tuple[Message, asyncio.Task[None]]] = {}
        self._stop_reasons: dict[tuple[int, int], StopReason] = {}
        self._timers: dict[tuple[int, int], asyncio.TimerHandle] = {}
        self._idle_workers: list[asyncio.Future[None]] = []
        self._workers: set[asyncio.Task[None]] = set()
        self.topics = sorted(handlers)
        self._batch_runners = {
            topic: self._make_batch_runner(each) for topic, each in handlers.items() if each.batch_options is not None
        }
        self._any_batch_waits = any(each.batch_options.wait_s for each in self._batch_runners.values())
        self._batch_size = sum(each.max_in_flight for each in self._batch_runners.values())
        self._single_topics = [topic for topic in self.topics if topic not in self._batch_runners]
        self._topic_limits = {
            topic: bound for topic in self._single_topics if (bound := self._topic_limit(handlers[topic])) is not None
        }
        self._record_run = {topic: self.metrics.for_topic(topic).runs.add for topic in self.topics}
        self._runners = {
            topic: self._run_after_completing if each.rules.policy is AckPolicy.ACK_FIRST else self._runner_for(each)
            for topic, each in handlers.items()
        }
        self._in_use: Counter[str] = Counter()
        self._threads_busy = 0
        self._yielding = 0
        self._stopping = self._closing = False
        # Messages that waited for a free slot when they were claimed: their run is counted when they start.
        self._uncounted: set[tuple[int, int]] = set()

    def capacity(self) -> Capacity:
        """Return what can be taken now."""
        settings = self.settings
        limit = min(
            settings.concurrency + settings.prefetch - len(self.waiting) - len(self._running),
            settings.claim_batch_size,
            # What is done but not settled yet reduces new claims, so that an outage of the database does not fill the memory.
            2 * (settings.concurrency + self._batch_size) + settings.claim_batch_size - len(self.in_flight),
        )
        batches = self._batch_capacity() if self._batch_runners else None
        start = settings.concurrency - len(self.waiting) - len(self._running) if settings.prefetch else None
        if not self._topic_limits:
            return Capacity(self._single_topics, None, limit, batches, start)
        free = {
            topic: self._topic_limits[topic] - self._in_use[topic] if topic in self._topic_limits else None
            for topic in self._single_topics
        }
        topics = [topic for topic, slots in free.items() if slots is None or slots > 0]
        return Capacity(topics, [free[topic] for topic in topics], limit, batches, start)

    def add(self, claimed: list[Message], claimed_at: float, waiting: Iterable[Message] = ()) -> None:
        """Take claimed messages and run them.

        Args:
            claimed: the messages.
            claimed_at: when their claim was sent.
            waiting: those of them whose run is not counted yet.
        """
        unreadable: list[Settlement] = []
        if self.message_crypto is not None and self._batch_runners:
            claimed, unreadable = self._decrypt_batches(self.message_crypto, claimed)
        self.in_flight.add(claimed, claimed_at)
        if unreadable:
            self.in_flight.add([each.message for each in unreadable], claimed_at)
            self._settle_batch(unreadable)
        self._uncounted.update((each.id, each.claim_id) for each in waiting if each.topic not in self._batch_runners)
        if self._batch_runners:
            claimed = self._add_to_batches(claimed)
        if self._topic_limits:
            self._in_use.update(message.topic for message in claimed if message.topic in self._topic_limits)
        self.waiting.extend(claimed)
        if self._stopping:
            self.release_waiting()
        self._wake_worker()

    def on_lock_lost(self, messages: Iterable[Message]) -> None:
        """The locks of these messages are lost: stop their handlers, settle nothing. If a handler has ended already, its settle finds out.

        A message that was claimed again meanwhile is this worker's under its new claim.
        """
        for message in messages:
            if self.in_flight.find(message.id) is None:
                continue
            batches = self._batch_runners.get(message.topic)
            if batches.contains(message) if batches else self._contains(message):
                self.in_flight.remove([message])
                self.metrics.record_end([message], AttemptResult.LOST)
                log.warning(
                    events.MESSAGE_LOCK_LOST, message_id=message.id, topic=message.topic, attempt=message.attempt
                )
                if batches:
                    batches.on_lock_lost(message)
                else:
                    self._interrupt_message(message, StopReason.LOST)

    def on_child_message(self, children: child_process.ChildProcesses) -> None:
        """Handle the reports that handlers in child processes send while they run."""
        for report in children.receive():
            message = self.in_flight.find(report["id"])
            if message is None or message.claim_id != report["claim_id"]:
                continue
            if "progress" in report:
                self.in_flight.progress.note(message, report["progress"])
            else:
                self.in_flight.extend(message, timedelta(seconds=report["extend_s"]))

    def release_waiting(self) -> None:
        """Release what was claimed and not started, and from now on what a pending claim still returns."""
        self._stopping = True
        while self.waiting:
            message = self.waiting.popleft()
            self._finish(message, Settlement(message, SettleKind.RELEASE))
        for batches in self._batch_runners.values():
            batches.release_gathered()

    def cancel_running(self) -> None:
        """Stop all handlers; the messages of those that obey are released."""
        for key in list(self._running):
            self._interrupt(key, StopReason.DRAINED)
        for batches in self._batch_runners.values():
            batches.cancel_running()

    @property
    def running(self) -> int:
        """How many handlers run now; one that has a batch counts once."""
        return len(self._running) + sum(each.running for each in self._batch_runners.values())

    @property
    def not_started(self) -> int:
        """How many messages wait for a free slot, or for their batch to become full."""
        return len(self.waiting) + sum(len(each.gathered) for each in self._batch_runners.values())

    def release_running(self) -> None:
        """Release the messages of handlers that ignore their cancellation: the process is about to end."""
        for message, _ in self._running.values():
            if self.in_flight.holds(message):
                self.settle_buffer.add(Settlement(message, SettleKind.RELEASE, ran=True))
        for batches in self._batch_runners.values():
            batches.release_running()

    async def close(self) -> None:
        """End the workers and the child processes. What does not end is left for the end of the process."""
        self._closing = True
        self.cancel_running()
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        self.threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*(asyncio.to_thread(each.close) for each in self.children.values()))

    @property
    def has_unstoppable(self) -> bool:
        """Whether handlers run that cannot be stopped: threads, or coroutines that swallow their cancellation."""
        threads = self._threads_busy + sum(each.threads_busy for each in self._batch_runners.values())
        return threads > 0 or any(not task.done() for task in self._tasks())

    def _tasks(self) -> list[asyncio.Task[Any]]:
        return [*self._workers, *(task for each in self._batch_runners.values() for task in each.tasks())]

    def _topic_limit(self, handler: Handler) -> int | None:
        """How many messages of a topic may be in flight at once; None = as many as the worker's."""
        if handler.mode is Mode.THREAD:
            return min(handler.concurrency or self.settings.threads, self.settings.threads)
        return handler.concurrency

    def _make_batch_runner(self, handler: Handler) -> BatchRunner:
        # A batch handler has its own concurrency; in threads, at most as many as there are threads.
        concurrency = self._topic_limit(handler) or 1
        children = self.children.get(handler.topic)
        return self.batch_runner_type(
            handler,
            concurrency,
            self.in_flight,
            self.runtime,
            self.threads,
            children,
            self._on_batch_start,
            self._settle_batch,
            self._notify_capacity,
            self.metrics,
            self.message_crypto,
        )

    def _batch_capacity(self) -> Capacity:
        slots = {topic: each.capacity for topic, each in self._batch_runners.items() if each.capacity}
        limit = min(sum(slots.values()), self.settings.claim_batch_size)
        return Capacity(list(slots), list(slots.values()), limit, start=0 if self._any_batch_waits else None)

    def _add_to_batches(self, claimed: list[Message]) -> list[Message]:
        """Pass the messages of batch handlers on; return the others."""
        singles: list[Message] = []
        for topic, messages in groupby(claimed, TOPIC):
            if topic in self._batch_runners:
                self._batch_runners[topic].add(self._reject_invalid(list(messages)))
            else:
                singles += messages
        return singles

    def _decrypt_batches(
        self, message_crypto: MessageCrypto, claimed: list[Message]
    ) -> tuple[list[Message], list[Settlement]]:
        """Decrypt the messages of batch handlers, before they are compared with each other; return all messages, and the settlements of the unreadable ones."""
        opened: list[Message] = []
        unreadable: list[Settlement] = []
        for topic, messages in groupby(claimed, TOPIC):
            if topic in self._batch_runners:
                readable, settlements = message_crypto.decrypt_all(list(messages))
                opened += readable
                unreadable += settlements
            else:
                opened += messages
        return opened, unreadable

    def _reject_invalid(self, messages: list[Message]) -> list[Message]:
        """Settle messages that do not match the topic's payload_schema; return the others."""
        if not self.schemas:
            return messages
        settlements = {message.id: settlement for message in messages if (settlement := self.schemas.check(message))}
        self._settle_batch(settlements.values())
        return [message for message in messages if message.id not in settlements]

    def _on_batch_start(self, messages: list[Message]) -> None:
        """A batch starts: if some batches wait to become full, their runs were not counted by the claim."""
        for message in messages if self._any_batch_waits else ():
            self.settle_buffer.start(message)

    def _settle_batch(self, settlements: Iterable[Settlement]) -> None:
        """Settle the messages of a batch, except those whose lock was lost."""
        held = [each for each in settlements if self.in_flight.holds(each.message)]
        if self.message_crypto is not None:
            held = [self.message_crypto.encrypt_settlement(each) for each in held]
        for each in held:
            self.settle_buffer.add(each)
        _log_batch_failures(held)
        self.settle_buffer.wake_events.set()

    def _notify_capacity(self) -> None:
        self.on_capacity()

    def _contains(self, message: Message) -> bool:
        return (message.id, message.claim_id) in self._running or message in self.waiting

    def _wake_worker(self) -> None:
        """Wake one worker if messages wait, and check again when it has reached its first wait: most handlers never do."""
        if not self.waiting or self._yielding:
            return
        if self._idle_workers:
            resting = self._idle_workers.pop()
            # Otherwise it is already awake.
            if not resting.done():
                resting.set_result(None)
        elif len(self._workers) < self.settings.concurrency:
            self._workers.add(asyncio.create_task(self._work(), name="handler"))
        else:
            return
        asyncio.get_running_loop().call_soon(self._wake_worker)

    async def _work(self) -> None:
        """Run one worker."""
        me = asyncio.current_task()
        assert me is not None  # noqa: S101 - a coroutine of a task
        turn_began = time.monotonic()
        while not self._closing:
            while not self.waiting:
                await self._idle(me)
                turn_began = time.monotonic()
            message = self.waiting.popleft()
            if self.in_flight.holds(message):
                settlement = await self._attempt(message, me)
                self._finish(message, settlement, started=True)
            else:
                self._finish(message, None)
            if me.cancelling():
                # The handler swallowed its cancellation, or cancelled its own task: that must not affect the next one.
                await self._await_uncancelled(me, asyncio.sleep(0))
            if time.monotonic() - turn_began > TURN_S:
                await self._yield_turn(me)
                turn_began = time.monotonic()

    async def _yield_turn(self, me: asyncio.Task[None]) -> None:
        """Let everything else have a turn, but no further worker: they would compute one after the other, each for a turn of its own."""
        self._yielding += 1
        await self._await_uncancelled(me, asyncio.sleep(0))
        self._yielding -= 1
        asyncio.get_running_loop().call_soon(self._wake_worker)

    async def _idle(self, me: asyncio.Task[None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._idle_workers.append(future)
        await self._await_uncancelled(me, future)
        if future.cancelled() and future in self._idle_workers:
            self._idle_workers.remove(future)

    async def _await_uncancelled(self, me: asyncio.Task[None], event: Awaitable[None]) -> None:
        """Wait between two messages. A cancellation that arrives here while the executor is not closing was left behind by a handler: ignore it."""
        try:
            await event
        except asyncio.CancelledError:
            if self._closing:
                raise
        while me.cancelling():
            me.uncancel()

    async def _attempt(self, message: Message, me: asyncio.Task[None]) -> Settlement | None:
        """Run one message's handler within its timeout; None = there is nothing to settle."""
        key = message.id, message.claim_id
        self._running[key] = message, me
        if key in self._uncounted:
            self.settle_buffer.start(message)
        try:
            settlement = self._encrypt(await self._run(self.handlers[message.topic], message))
        except asyncio.CancelledError as error:
            if key in self._stop_reasons:
                return _stopped_settlement(message, self._stop_reasons[key])
            # It is not held: what a handler left behind has hit the wait for a thread, a child or the database.
            settlement = self._encrypt(self.handlers[message.topic].rules.to_settlement(message, error))
        except Exception as error:
            # A bug of held: it must not cost the worker loop, nor keep the message in flight for ever.
            log.exception(events.LOOP_CRASHED, loop="handler", message_id=message.id, topic=message.topic)
            settlement = self._encrypt(
                Settlement(
                    message, SettleKind.RETRY, error=outcome.describe(error), error_type=type(error).__qualname__
                )
            )
        finally:
            del self._running[key]
            self._stop_reasons.pop(key, None)
            if timer := self._timers.pop(key, None):
                timer.cancel()
        return settlement

    def _encrypt(self, settlement: Settlement | None) -> Settlement | None:
        return (
            settlement
            if settlement is None or self.message_crypto is None
            else self.message_crypto.encrypt_settlement(settlement)
        )

    def _start_timeout(self, message: Message) -> None:
        """The handler starts: from now on its timeout counts."""
        key = message.id, message.claim_id
        if message.timeout_s is not None and key in self._running:
            self.in_flight.mark_started(message, time.monotonic())
            self._timers[key] = asyncio.get_running_loop().call_later(
                message.timeout_s, self._interrupt_message, message, StopReason.TIMED_OUT
            )

    def _run(self, handler: Handler, message: Message) -> Coroutine[Any, Any, Settlement | None]:
        # Not a coroutine, and it decides nothing that is known beforehand: every message would pay for it.
        if self.message_crypto is not None:
            opened = self.message_crypto.decrypt(message)
            if isinstance(opened, Settlement):
                return _immediately(opened)
            message = opened
        if self.schemas and (settlement := self.schemas.check(message)):
            return _immediately(settlement)
        return self._runners[message.topic](handler, message)

    async def _run_after_completing(self, handler: Handler, message: Message) -> None:
        """Complete the message, then run its handler: its outcome is only logged."""
        if await self.runtime.complete_first([message]):
            log.warning(events.MESSAGE_LOCK_LOST, message_id=message.id, topic=message.topic, attempt=message.attempt)
            return
        try:
            settlement = await self._runner_for(handler)(handler, message)
        except asyncio.CancelledError:
            reason = self._stop_reasons.get((message.id, message.claim_id))
            _log_after_completion(message, f"the handler was stopped: {reason.value if reason else 'cancelled'}")
        else:
            settlement = self._encrypt(settlement)
            if settlement is not None and settlement.error is not None:
                _log_after_completion(message, settlement.error)

    def _runner_for(self, handler: Handler) -> Runner:
        match handler.mode:
            case Mode.ASYNC:
                return self._run_async
            case Mode.THREAD:
                return self._run_in_thread
            case Mode.PROCESS:
                return self._run_in_child

    async def _run_async(self, handler: Handler, message: Message) -> Settlement | None:
        context = _context(handler, message, self.runtime) if handler.arguments > 1 else None
        returned: object
        self._start_timeout(message)
        began = time.monotonic()
        try:
            returned = await handler.call(message, context)
        except BaseException as error:  # sys.exit in a handler fails the message, not the daemon
            if is_being_closed():
                raise
            if (message.id, message.claim_id) in self._stop_reasons and not isinstance(error, outcome.Outcome):
                # An exception that was raised because of the stop is not the handler's failure.
                raise asyncio.CancelledError from error
            # If it was cancelled, it cancelled itself.
            returned = error
        finally:
            self._record_run[message.topic](time.monotonic() - began)
            clean_up_after_coroutine()
        return _to_settlement(handler, message, returned, context, self.message_crypto)

    async def _run_in_thread(self, handler: Handler, message: Message) -> Settlement | None:
        loop = asyncio.get_running_loop()
        # It may have to wait for a thread first.
        on_start = (
            partial(loop.call_soon_threadsafe, self._start_timeout, message) if message.timeout_s is not None else None
        )
        future = self.threads.submit(
            _call_in_thread, handler, message, self.runtime, on_start, self.metrics, self.message_crypto
        )
        # A thread cannot be stopped: its slot stays in use until it ends by itself, even if the message has timed out.
        self._threads_busy += 1
        future.add_done_callback(
            lambda _: loop.is_closed() or loop.call_soon_threadsafe(self._on_thread_end, message.topic)
        )
        return await asyncio.wrap_future(future)

    def _on_thread_end(self, topic: str) -> None:
        self._threads_busy -= 1
        self._free_slot(topic)

    async def _run_in_child(self, handler: Handler, message: Message) -> Settlement | None:
        began = time.monotonic()
        settlement = await self._call_child(handler, message)
        self.metrics.record_run(message.topic, began, settlement.ran_s)
        return settlement

    async def _call_child(self, handler: Handler, message: Message) -> Settlement:
        try:
            return await self.children[handler.topic].run(message)
        except TimeoutError:
            return outcome.timed_out(message)
        except ProcessExpired as error:
            log.warning(events.CHILD_DIED, message_id=message.id, topic=message.topic, exit_code=error.exitcode)
            return handler.rules.to_failure(
                message, error, f"the handler's process died with exit code {error.exitcode}"
            )
        except BrokenProcessPool as error:
            log.warning(events.CHILD_DIED, message_id=message.id, topic=message.topic, exit_code=None)
            return handler.rules.to_failure(message, error, child_process.DIED_UNOBSERVED)
        except Exception as error:  # noqa: BLE001 - anything that cannot be pickled
            return Settlement(
                message, SettleKind.RETRY, error=outcome.describe(error), error_type=type(error).__qualname__
            )

    def _interrupt_message(self, message: Message, reason: StopReason) -> None:
        self._interrupt((message.id, message.claim_id), reason)

    def _interrupt(self, key: tuple[int, int], reason: StopReason) -> None:
        if key in self._running and key not in self._stop_reasons:
            self._stop_reasons[key] = reason
            self._running[key][1].cancel()

    def _finish(self, message: Message, settlement: Settlement | None, *, started: bool = False) -> None:
        """The message leaves the executor; a thread frees its slot itself."""
        if not (started and self.handlers[message.topic].mode is Mode.THREAD):
            self._free_slot(message.topic)
        if self._uncounted:
            self._uncounted.discard((message.id, message.claim_id))
        if settlement is None:
            self.in_flight.remove([message])
            self.settle_buffer.wake_events.set()
            return
        if settlement.error is not None:
            _log_failure(settlement)
        for event, why in settlement.warnings:
            log.error(event, message_id=message.id, topic=message.topic, attempt=message.attempt, reason=why)
        if self.in_flight.progress:
            settlement.progress = self.in_flight.progress.last(message)
        self.settle_buffer.add(settlement)

    def _free_slot(self, topic: str) -> None:
        """One slot of a topic is free again; if it had none, claims have skipped the topic."""
        if topic not in self._topic_limits:
            return
        self._in_use[topic] -= 1
        if self._in_use[topic] == self._topic_limits[topic] - 1:
            self.on_capacity()


def _stopped_settlement(message: Message, reason: StopReason) -> Settlement | None:
    """Return the settlement of an attempt that was stopped from outside."""
    match reason:
        case StopReason.TIMED_OUT:
            return outcome.timed_out(message)
        case StopReason.DRAINED:
            return Settlement(message, SettleKind.RELEASE, ran=True)
        case StopReason.LOST:
            return None


def _call_in_thread(
    handler: Handler,
    message: Message,
    runtime: DaemonRuntime,
    on_start: Callable[[], object] | None,
    metrics: MetricsRecorder,
    message_crypto: MessageCrypto | None,
) -> Settlement | None:
    """Run a sync handler, in its thread."""
    if on_start is not None:
        on_start()
    context = _context(handler, message, runtime)
    began = time.monotonic()
    returned: object
    try:
        with fresh_connections():
            returned = handler.call(message, context)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails the message, not the thread
        returned = error
    finally:
        metrics.record_run(message.topic, began)
    return _to_settlement(handler, message, returned, context, message_crypto)


def _context(handler: Handler, message: Message, runtime: DaemonRuntime) -> Context:
    return Context(message, runtime, completed=handler.rules.policy is AckPolicy.ACK_FIRST)


async def _immediately(settlement: Settlement) -> Settlement:
    return settlement


def _to_settlement(
    handler: Handler, message: Message, returned: object, context: Context | None, message_crypto: MessageCrypto | None
) -> Settlement | None:
    """Return what to settle; nothing if the handler completed its message in its own transaction."""
    returned = check_awaited(tracker_of(context), returned)
    if context is None or not context.completed or handler.rules.policy is AckPolicy.ACK_FIRST:
        return handler.rules.to_settlement(message, returned, None if context is None else context.action)
    if isinstance(returned, BaseException):
        _log_after_completion(
            message,
            outcome.describe(returned) if message_crypto is None else message_crypto.describe_error(message, returned),
        )
    elif returned is not None:
        _log_after_completion(message, "it returned an output: set ctx.output in the transaction")
    return None


def _log_after_completion(message: Message, error: str) -> None:
    log.warning(events.MESSAGE_ENDED_AFTER_COMPLETION, message_id=message.id, topic=message.topic, reason=error)


FAILURE_EVENTS = {
    SettleKind.COMPLETE: events.MESSAGE_OUTPUT_DROPPED,
    SettleKind.RETRY: events.ATTEMPT_FAILED,
    SettleKind.EXPIRE: events.ATTEMPT_TIMED_OUT,
    SettleKind.REJECT: events.MESSAGE_REJECTED,
    SettleKind.FAIL: events.MESSAGE_FAILED,
}


def _log_batch_failures(settlements: Iterable[Settlement]) -> None:
    """Log the failures of a batch: the same failure of many messages is logged once, with the first of them."""
    alike = Counter((each.kind, each.error) for each in settlements if each.error is not None)
    for each in settlements:
        if each.error is not None and (count := alike.pop((each.kind, each.error), 0)):
            _log_failure(each, **({"messages": count} if count > 1 else {}))


def _log_failure(settlement: Settlement, **more: int) -> None:
    """Log a failed attempt: the last line of its error, never its payload."""
    message = settlement.message
    reason = (settlement.error or "").rstrip().rpartition("\n")[2]
    log.warning(
        FAILURE_EVENTS[settlement.kind],
        message_id=message.id,
        topic=message.topic,
        attempt=message.attempt,
        reason=reason,
        **more,
    )
