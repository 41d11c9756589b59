"""Batch handlers: messages that were claimed for them are gathered, and run batch by batch.

A batch is a task of its own, which would be expensive for one message and is cheap for hundreds. Batches have slots of their own, too:
the topic's `concurrency` times `batch_size` messages, which do not count for `worker.concurrency`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import TYPE_CHECKING

import structlog
from pebble import ProcessExpired

from pgrouse import events
from pgrouse.client.message import Message
from pgrouse.client.settlement import SettleKind, Settlement
from pgrouse.handlers import outcome
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.batch import Batch
from pgrouse.handlers.handler import Handler, Mode
from pgrouse.handlers.outcome import Outcome
from pgrouse.worker.child_process import DIED_UNOBSERVED
from pgrouse.worker.django_connections import clean_up_after_coroutine, fresh_connections
from pgrouse.worker.metrics_recorder import MetricsRecorder
from pgrouse.worker.stop_reason import StopReason, is_being_closed

if TYPE_CHECKING:
    from pgrouse.worker.child_process import ChildProcesses
    from pgrouse.worker.daemon_runtime import DaemonRuntime
    from pgrouse.worker.in_flight import InFlight
    from pgrouse.worker.message_crypto import MessageCrypto

log = structlog.get_logger()


class BatchRun:
    """A running batch.

    Attributes:
        stop_reason: why it was stopped from outside, if it was.
        settlements: how its messages ended, once its handler has.
        has_thread: whether a thread runs it, and keeps its slot until it ends by itself.
    """

    __slots__ = ("batch", "has_thread", "settlements", "stop_reason", "task", "timer")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.task: asyncio.Task[list[Settlement]]
        self.timer: asyncio.TimerHandle | None = None
        self.stop_reason: StopReason | None = None
        self.settlements: list[Settlement] | None = None
        self.has_thread = False

    def stop(self, reason: StopReason) -> None:
        """Cancel it; only the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.task.cancel()

    def settle_stopped(self) -> list[Settlement]:
        """Return how its messages end after it was stopped; lost messages are not settled."""
        return self.batch.timed_out() if self.stop_reason is StopReason.TIMED_OUT else self.batch.released()


class BatchRunner:
    """Gathers the messages of one batch handler and runs it.

    Args:
        concurrency: how many batches run at once.
        threads: where sync handlers run.
        children: where handlers with isolation = "process" run.
        on_start: called with the messages of a batch that starts.
        settle: called with the settlements of a batch.
        on_capacity: called when more can be taken after nothing could.
        metrics: records each run.
        message_crypto: encrypts what handlers return; nothing unless given.
    """

    def __init__(
        self,
        handler: Handler,
        concurrency: int,
        in_flight: InFlight,
        runtime: DaemonRuntime,
        threads: Executor,
        children: ChildProcesses | None,
        on_start: Callable[[list[Message]], None],
        settle: Callable[[Iterable[Settlement]], None],
        on_capacity: Callable[[], None],
        metrics: MetricsRecorder,
        message_crypto: MessageCrypto | None = None,
    ) -> None:
        assert handler.batch_options is not None  # noqa: S101 - a batch handler has them
        self.handler, self.concurrency, self.batch_options = handler, concurrency, handler.batch_options
        self.in_flight, self.runtime, self.threads, self.children = in_flight, runtime, threads, children
        self.on_start, self.settle, self.on_capacity, self.metrics = on_start, settle, on_capacity, metrics
        self.message_crypto = message_crypto
        self.gathered: list[Message] = []
        self.threads_busy = 0
        self._gathering_since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._runs: set[BatchRun] = set()
        self._slots_in_use = 0
        self._stopping = False

    @property
    def completes_first(self) -> bool:
        """Whether messages are completed before the handler runs."""
        return self.handler.rules.policy is AckPolicy.ACK_FIRST

    @property
    def max_in_flight(self) -> int:
        """How many messages of the topic may be in flight."""
        return self.concurrency * self.batch_options.size

    @property
    def capacity(self) -> int:
        """How many messages can be taken now: enough to fill the free slots. A batch that is not full takes a whole slot."""
        return max(0, (self.concurrency - self._slots_in_use) * self.batch_options.size - len(self.gathered))

    @property
    def running(self) -> int:
        """How many batches run now."""
        return len(self._runs)

    def add(self, messages: list[Message]) -> None:
        """Take claimed messages; run what is full, or has waited long enough."""
        if not self.gathered:
            self._gathering_since = time.monotonic()
        self.gathered += messages
        if self._stopping:
            self.release_gathered()
        else:
            self._start_ready()

    def contains(self, message: Message) -> bool:
        """Whether a message waits or runs here, under this claim."""
        return message in self.gathered or any(run.batch.ids.get(message.id) == message.claim_id for run in self._runs)

    def on_lock_lost(self, message: Message) -> None:
        """The message's lock is lost: it is not run. A running batch goes on for its other messages, if there are any."""
        before = self.capacity
        self.gathered = [each for each in self.gathered if each != message]
        if before == 0 and self.capacity > 0:
            self.on_capacity()
        for run in self._runs:
            if message.id in run.batch.ids and not run.batch.committed and not self._holds_any(run):
                run.stop(StopReason.LOST)

    def release_gathered(self) -> None:
        """Release what was not started, and from now on what a pending claim still returns."""
        self._stopping = True
        gathered, self.gathered = self.gathered, []
        self._set_timer()
        self.settle(Settlement(message, SettleKind.RELEASE) for message in gathered)

    def cancel_running(self) -> None:
        """Stop all batches; messages of those that obey are released unless they were settled one by one."""
        for run in list(self._runs):
            run.stop(StopReason.DRAINED)

    def release_running(self) -> None:
        """Settle or release the messages of batches that ignore their cancellation: the process is about to end."""
        for run in self._runs:
            self.settle(run.batch.released())

    def tasks(self) -> list[asyncio.Task[list[Settlement]]]:
        """Return the tasks of the running batches."""
        return [run.task for run in self._runs]

    def _holds_any(self, run: BatchRun) -> bool:
        return any(self.in_flight.holds(message) for message in run.batch.messages)

    def _start_ready(self) -> None:
        """Run what is full or has waited long enough, as far as there are free slots."""
        while self._slots_in_use < self.concurrency and self._is_ready():
            size = self.batch_options.size
            first, self.gathered = self.gathered[:size], self.gathered[size:]
            self._gathering_since = time.monotonic()
            self._start([message for message in first if self.in_flight.holds(message)])
        self._set_timer()

    def _is_ready(self) -> bool:
        waited = time.monotonic() - self._gathering_since >= self.batch_options.wait_s
        return len(self.gathered) >= self.batch_options.size or (waited and bool(self.gathered))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Without a free slot this happens when one becomes free.
        if self.gathered and self._slots_in_use < self.concurrency:
            left = max(0.0, self._gathering_since + self.batch_options.wait_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left, self._start_ready)

    def _start(self, messages: list[Message]) -> None:
        if not messages:
            return
        self.on_start(messages)
        run = BatchRun(Batch(self.handler, messages, self.runtime, self.message_crypto))
        self._slots_in_use += 1
        self._runs.add(run)
        run.task = asyncio.create_task(self._attempt(run), name="batch")
        # Not in the task itself: a task that is cancelled before its first step never runs.
        run.task.add_done_callback(partial(self._on_done, run))

    def _on_done(self, run: BatchRun, task: asyncio.Task[list[Settlement]]) -> None:
        self._runs.discard(run)
        if run.timer is not None:
            run.timer.cancel()
        self.settle(self._settlements(run, task))
        if not run.has_thread:
            self._free_slot()

    def _settlements(self, run: BatchRun, task: asyncio.Task[list[Settlement]]) -> list[Settlement]:
        if task.cancelled():
            # The handler may have cancelled its own task and returned: then it has ended.
            return self._settle_cancelled(run) if run.settlements is None else run.settlements
        error = task.exception()
        if error is None:
            return task.result()
        # A bug in pgrouse, or an outcome that cannot be formatted: it must not keep the messages in flight forever.
        log.error(events.LOOP_CRASHED, loop="batch", topic=self.handler.topic, exc_info=error)
        described = outcome.describe(error)
        kind = type(error).__qualname__
        return [
            Settlement(message, SettleKind.RETRY, error=described, error_type=kind) for message in run.batch.messages
        ]

    def _settle_cancelled(self, run: BatchRun) -> list[Settlement]:
        if run.stop_reason is None:
            # pgrouse did not stop it: it failed.
            return run.batch.to_settlements(asyncio.CancelledError())
        if run.stop_reason is StopReason.DRAINED and self.completes_first and run.batch.committed:
            run.batch.log_after_completion("the handler was stopped: the daemon ends")
        return run.settle_stopped()

    def _free_slot(self) -> None:
        """A slot is free again; if there was no capacity, claims have skipped the topic."""
        before = self.capacity
        self._slots_in_use -= 1
        self._start_ready()
        if before == 0 and self.capacity > 0:
            self.on_capacity()

    def _start_timeout(self, run: BatchRun) -> None:
        """The handler starts: from now on its timeout counts."""
        if run.batch.limit_s is None or run not in self._runs:
            return
        now = time.monotonic()
        for message in run.batch.messages:
            self.in_flight.mark_started(message, now)
        run.timer = asyncio.get_running_loop().call_later(run.batch.limit_s, run.stop, StopReason.TIMED_OUT)

    async def _attempt(self, run: BatchRun) -> list[Settlement]:
        run.settlements = (
            await self._run_after_completing(run)
            if self.completes_first
            else self._encrypted(await self._dispatch(run))
        )
        return run.settlements

    async def _run_after_completing(self, run: BatchRun) -> list[Settlement]:
        """Complete the messages, then run the handler: its outcome is only logged."""
        batch = run.batch
        lost = await self.runtime.complete_first(batch.messages)
        for message in batch.messages:
            if message.id in lost:
                log.warning(
                    events.MESSAGE_LOCK_LOST, message_id=message.id, topic=message.topic, attempt=message.attempt
                )
        batch.start_completed(lost)
        settlements = self._encrypted(await self._dispatch(run)) if batch.messages else []
        if error := next((each.error for each in settlements if each.error is not None), None):
            batch.log_after_completion(error)
        return []

    def _encrypted(self, settlements: list[Settlement]) -> list[Settlement]:
        """Return the settlements as they may be stored, before they are logged or settled."""
        return (
            settlements
            if self.message_crypto is None
            else [self.message_crypto.encrypt_settlement(each) for each in settlements]
        )

    async def _dispatch(self, run: BatchRun) -> list[Settlement]:
        match self.handler.mode:
            case Mode.ASYNC:
                return await self._run_async(run)
            case Mode.THREAD:
                return await self._run_in_thread(run)
            case Mode.PROCESS:
                return await self._run_in_child(run)

    async def _run_async(self, run: BatchRun) -> list[Settlement]:
        returned: object
        self._start_timeout(run)
        began = time.monotonic()
        try:
            returned = run.batch.call()
            if run.batch.valid_items:
                returned = await returned  # type: ignore[misc]
        except BaseException as error:  # sys.exit in a handler fails its messages, not the daemon
            if is_being_closed():
                raise
            if run.stop_reason is not None and not isinstance(error, Outcome):
                # An exception that was raised because of the stop is not the handler's failure.
                raise asyncio.CancelledError from error
            # If it was cancelled, it cancelled itself.
            returned = error
        finally:
            self._record_run(run.batch, began)
            clean_up_after_coroutine()
        return run.batch.to_settlements(returned)

    def _record_run(self, batch: Batch, began: float, ran_s: float | None = None) -> None:
        """A call is over, if there was one: if no message of the batch is valid, the handler is not called. Thread-safe."""
        if batch.valid_items:
            self.metrics.record_run(self.handler.topic, began, ran_s)

    async def _run_in_thread(self, run: BatchRun) -> list[Settlement]:
        loop = asyncio.get_running_loop()
        future = self.threads.submit(
            self._call_in_thread, run.batch, partial(loop.call_soon_threadsafe, self._start_timeout, run)
        )
        # A thread cannot be stopped: its slot stays in use until it ends by itself, even if the batch has timed out.
        run.has_thread = True
        self.threads_busy += 1
        future.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(self._on_thread_end))
        return await asyncio.wrap_future(future)

    def _call_in_thread(self, batch: Batch, on_start: Callable[[], object]) -> list[Settlement]:
        """Run a sync batch handler, in its thread."""
        on_start()
        began = time.monotonic()
        returned: object
        try:
            with fresh_connections():
                returned = batch.call()
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails its messages, not the thread
            returned = error
        finally:
            self._record_run(batch, began)
        return batch.to_settlements(returned)

    def _on_thread_end(self) -> None:
        self.threads_busy -= 1
        self._free_slot()

    async def _run_in_child(self, run: BatchRun) -> list[Settlement]:
        began = time.monotonic()
        settlements = await self._call_child(run)
        ran_s = next((each.ran_s for each in settlements if each.ran_s is not None), None)
        # Only the child knows which messages were valid.
        self.metrics.record_run(self.handler.topic, began, ran_s)
        return settlements

    async def _call_child(self, run: BatchRun) -> list[Settlement]:
        assert self.children is not None  # noqa: S101 - made with the daemon
        batch = run.batch
        try:
            return await self.children.run_batch(batch.messages, batch.limit_s)
        except TimeoutError:
            return batch.timed_out()
        except ProcessExpired as error:
            log.warning(
                events.CHILD_DIED,
                message_id=batch.messages[0].id,
                topic=self.handler.topic,
                messages=len(batch.messages),
                exit_code=error.exitcode,
            )
            return batch.died(error, f"the handler's process died with exit code {error.exitcode}")
        except BrokenProcessPool as error:
            log.warning(
                events.CHILD_DIED,
                message_id=batch.messages[0].id,
                topic=self.handler.topic,
                messages=len(batch.messages),
                exit_code=None,
            )
            return batch.died(error, DIED_UNOBSERVED)
        except Exception as error:  # noqa: BLE001 - anything that cannot be pickled
            return batch.to_settlements(error)
