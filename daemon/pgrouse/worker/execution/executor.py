"""The executor: takes claimed messages, and runs their handlers one by one or in batches.

It reports how much it can take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import timedelta
from itertools import groupby
from operator import attrgetter

from pgrouse.client.message import Message
from pgrouse.config import config
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.attempt.current_attempt import current_topic
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process.new_thread import call_in_new_thread
from pgrouse.values.topic_pattern import by_topic, is_pattern
from pgrouse.worker.child.child_process import ChildProcesses
from pgrouse.worker.execution.attempts import Attempts
from pgrouse.worker.execution.batch_gatherer import BatchGatherer
from pgrouse.worker.execution.capacity import Capacity
from pgrouse.worker.execution.daemon_runtime import DaemonRuntime
from pgrouse.worker.execution.failure_hooks import FailureHooks
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.execution.run import Run, StopReason
from pgrouse.worker.execution.runners import (
    ChildRunner,
    CompleteFirstRunner,
    HandlerThreads,
    LoopRunner,
    Runner,
    ThreadRunner,
    is_plain,
)
from pgrouse.worker.execution.schema_cache import SchemaCache
from pgrouse.worker.execution.settle_buffer import SettleBuffer
from pgrouse.worker.execution.single_scheduler import SingleScheduler
from pgrouse.worker.reporting.log_capture import LogCapture
from pgrouse.worker.reporting.metrics_recorder import AttemptResult
from pgrouse.worker.reporting.observer import NO_OBSERVER, Observer

TOPIC = attrgetter("topic")
CLOSE_S = 2.0


class HandlerExecutor:
    """Runs the handlers of one daemon.

    Args:
        handlers: by topic.
        settings: the section `[worker]`.
        children: by topic, where isolation = "process".
        on_capacity: called when a topic that was full has a free slot again.
        schemas: the payload schemas of the topics; none by default.
        observer: sees every attempt.
        hooks: called for failures, if there are any.
        capture: captures the log lines of handlers; None = no handler keeps them.

    Attributes:
        concurrency: how many handlers run at once; batches have their own slots.
    """

    def __init__(
        self,
        handlers: dict[str, Handler],
        settings: config.WorkerSettings,
        in_flight: InFlight,
        settle_buffer: SettleBuffer,
        runtime: DaemonRuntime,
        children: dict[str, ChildProcesses],
        on_capacity: Callable[[], None],
        schemas: SchemaCache | None = None,
        observer: Observer = NO_OBSERVER,
        hooks: FailureHooks | None = None,
        capture: LogCapture | None = None,
    ) -> None:
        self.settings, self.in_flight, self.settle_buffer, self.runtime = settings, in_flight, settle_buffer, runtime
        self.children, self.metrics, self.on_capacity = children, settle_buffer.metrics, on_capacity
        self.topics = sorted(handlers)
        self.handlers = by_topic(handlers)
        self.concurrency = settings.concurrency
        self.threads = HandlerThreads(settings.threads)
        runners = {topic: self._runner(each) for topic, each in handlers.items()}
        schemas = SchemaCache() if schemas is None else schemas
        plain = {
            topic: each for topic, each in runners.items() if isinstance(each, LoopRunner) and is_plain(handlers[topic])
        }
        self.attempts = Attempts(in_flight, settle_buffer, runtime, runners, plain, schemas, observer, hooks, capture)
        singles = [(each, self._limit(each)) for each in handlers.values() if each.batch_options is None]
        self.singles = SingleScheduler(
            singles, settings.concurrency, self.attempts, self._report_capacity, releases_old=settings.prefetch is None
        )
        self.gatherers = self._gatherers(handlers)
        self._any_batch_waits = any(each.options.wait_s for each in self.gatherers.values())
        # Whole batches: the rest of a claim would wait for the next one.
        largest = max((each.options.size for each in self.gatherers.values()), default=1)
        self._batch_claim = max(1, settings.claim_batch_size // largest) * largest

    def capacity(self) -> Capacity:
        """Return what can be taken now."""
        settings = self.settings
        ahead = self.singles.prefetch.counts() if settings.prefetch is None else {}
        for_workers, for_slots = self.singles.may_wait(ahead)
        free = self._free()
        in_batches = sum(each.max_in_flight for each in self.gatherers.values())
        limit = min(
            free + (settings.prefetch or 0) + for_workers + sum(for_slots.values()),
            settings.claim_batch_size,
            # Messages that are done but not settled reduce new claims, so that an outage of the database does not fill
            # the memory.
            2 * (self.concurrency + in_batches) + settings.claim_batch_size - len(self.in_flight),
        )
        topics, slots = self.singles.free_slots(for_slots)
        return Capacity(
            topics,
            slots,
            limit,
            self._batch_capacity() if self.gatherers else None,
            free if settings.prefetch or ahead else None,
            [ahead.get(topic, 0) for topic in topics] if ahead else None,
        )

    def _free(self) -> int:
        """How many messages could begin at once; negative if more messages wait than could."""
        running = self.running - sum(each.running for each in self.gatherers.values())
        return self.concurrency - len(self.singles.waiting.messages) - running

    def add(self, claimed: list[Message], claimed_at: float, waiting: Iterable[Message] = ()) -> None:
        """Take claimed messages and run them.

        Args:
            claimed: the messages.
            claimed_at: when their claim was sent.
            waiting: the claimed messages whose run is not counted yet.
        """
        self.in_flight.add(claimed, claimed_at)
        if self.gatherers:
            claimed = self._add_to_batches(claimed)
        self.singles.add(claimed, {each.id for each in waiting})

    def on_lock_lost(self, messages: Iterable[Message]) -> None:
        """Handle the lost locks of these messages: stop their handlers and settle nothing.

        If a handler has ended already, its settle finds out.

        If this worker has claimed a message again in the meantime, it keeps the message under its new claim.
        """
        runs = {(each.id, each.claim_id): run for run in self.attempts.runs for each in run.messages}
        for message in messages:
            # The handler itself may have removed the lock; when it has ended, the database tells.
            if self.in_flight.find(message.id) is None or self.in_flight.is_completing(message):
                continue
            run = runs.get((message.id, message.claim_id))
            if run is None and not self._scheduler(message.topic).discard(message):
                continue
            self.in_flight.remove([message])
            self.metrics.record_end([message], AttemptResult.LOST)
            self._log_lost(message)
            if run is not None:
                run.has_lost = True
                self._stop_if_lost(run)

    def _log_lost(self, message: Message) -> None:
        keys = {"message_id": message.id, "topic": message.topic, "attempt": message.attempt}
        if self.in_flight.is_cancelled(message):
            log.info(events.MESSAGE_CANCELLED, **keys)
        else:
            log.warning(events.MESSAGE_LOCK_LOST, **keys)

    def on_child_message(self, children: ChildProcesses) -> None:
        """Handle the reports that handlers in child processes send while they run."""
        for report in children.receive():
            message = self.in_flight.find(report["id"])
            if message is None or message.claim_id != report["claim_id"]:
                continue
            if "progress" in report:
                self.in_flight.progress.note(message, report["progress"])
            elif "completing" in report:
                self.in_flight.mark_completing([message])
            else:
                self.in_flight.extend(message, timedelta(seconds=report["extend_s"]))

    def scale(self, concurrency: int) -> None:
        """Run this many handlers at once from now on. Handlers that already run are not stopped."""
        self.concurrency = concurrency
        self.singles.scale(concurrency)
        self._report_capacity()

    def release_waiting(self) -> None:
        """Release messages that were claimed and not started.

        From now on those that a pending claim still returns are released, too.
        """
        self.attempts.is_draining = True
        for each in self._schedulers():
            each.release_waiting()

    def cancel_running(self) -> None:
        """Stop all handlers; release the messages of those that end."""
        for run in self.attempts.runs:
            run.stop(StopReason.DRAINED)

    def release_running(self) -> None:
        """Release the messages of handlers that ignore their cancellation: the process is about to end."""
        self.attempts.release_running()

    @property
    def running(self) -> int:
        """How many handlers run now; a batch handler counts once."""
        return len(self.attempts.runs)

    @property
    def not_started(self) -> int:
        """How many messages wait for a free slot, or for their batch to become full."""
        return sum(each.not_started for each in self._schedulers())

    async def close(self) -> None:
        """End the workers and the child processes.

        Tasks and threads that do not end are left until the process ends.
        """
        for each in self._schedulers():
            each.close()
        self.cancel_running()
        tasks = self._tasks()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_S)
        self.threads.shutdown()
        await asyncio.gather(*(call_in_new_thread(each.close) for each in self.children.values()))

    @property
    def has_unstoppable(self) -> bool:
        """Whether handlers run that cannot be stopped: threads, or coroutines that swallow their cancellation."""
        return self.threads.busy > 0 or any(not task.done() for task in self._tasks())

    def _tasks(self) -> list[asyncio.Task[None]]:
        return [task for each in self._schedulers() for task in each.tasks()]

    def _schedulers(self) -> list[SingleScheduler | BatchGatherer]:
        return [self.singles, *self.gatherers.values()]

    def _scheduler(self, topic: str) -> SingleScheduler | BatchGatherer:
        return self.gatherers.get(self.handlers[topic].topic, self.singles)

    def _runner(self, handler: Handler) -> Runner:
        runner = self._runner_of_mode(handler)
        first = handler.rules.policy is AckPolicy.ACK_FIRST
        return CompleteFirstRunner(runner, self.runtime) if first else runner

    def _runner_of_mode(self, handler: Handler) -> Runner:
        record_run = self._record_run if is_pattern(handler.topic) else self.metrics.for_topic(handler.topic).runs.add
        match handler.mode:
            case ExecutionMode.ASYNC:
                return LoopRunner(self.in_flight, record_run)
            case ExecutionMode.THREAD:
                return ThreadRunner(self.threads, self.in_flight, record_run)
            case ExecutionMode.PROCESS:
                return ChildRunner(self.children[handler.topic], self.runtime, self.in_flight, record_run)

    def _record_run(self, seconds: float) -> None:
        """Record a call of the handler of a pattern, for the topic of its message."""
        self.metrics.for_topic(current_topic()).runs.add(seconds)

    def _limit(self, handler: Handler) -> int | None:
        """Return how many messages or batches of a topic may be in flight at once; None = as many as the worker's."""
        if handler.mode is ExecutionMode.THREAD:
            return min(handler.concurrency or self.settings.threads, self.settings.threads)
        return handler.concurrency

    def _gatherers(self, handlers: dict[str, Handler]) -> dict[str, BatchGatherer]:
        batched = [(each, options) for each in handlers.values() if (options := each.batch_options) is not None]
        # If a batch may wait to become full, claims count no runs: a run is counted when its batch starts.
        is_counted = not any(options.wait_s for _, options in batched)
        return {
            each.topic: BatchGatherer(
                each,
                options,
                self._limit(each) or 1,
                self.attempts,
                self._report_capacity,
                is_counted=is_counted,
                claims_ahead=self.settings.prefetch is None,
            )
            for each, options in batched
        }

    def _batch_capacity(self) -> Capacity:
        """Return what batches can take, in as many claims as it needs."""
        ahead = {topic: each.ahead for topic, each in self.gatherers.items()}
        room = {topic: each.capacity + ahead[topic] for topic, each in self.gatherers.items()}
        slots = {topic: count for topic, count in room.items() if count}
        return Capacity(
            list(slots),
            list(slots.values()),
            sum(slots.values()),
            start=0 if self._any_batch_waits else None,
            prefetch=[ahead[topic] for topic in slots],
            per_claim=self._batch_claim,
        )

    def _add_to_batches(self, claimed: list[Message]) -> list[Message]:
        """Pass the messages of batch handlers on; return the others."""
        singles: list[Message] = []
        for topic, messages in groupby(claimed, TOPIC):
            gatherer = self.gatherers.get(self.handlers[topic].topic)
            if gatherer is not None:
                gatherer.add(list(messages))
            else:
                singles += messages
        return singles

    def _stop_if_lost(self, run: Run) -> None:
        """Stop a run whose messages are all lost.

        A batch continues for its other messages; a run that has completed its messages also continues.
        """
        is_committed = run.call is not None and run.call.committed
        if not is_committed and not any(map(self.in_flight.holds, run.messages)):
            run.stop(StopReason.LOST)

    def _report_capacity(self) -> None:
        self.on_capacity()
