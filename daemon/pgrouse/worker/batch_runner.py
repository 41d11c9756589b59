"""The batch handlers of one daemon: what was claimed for them is gathered, and run batch by batch.

A batch is a task of its own, which would be too much for one message and is nothing for hundreds. Batches have places of their own
too: `concurrency` of their topic times `batch` messages, which `worker.concurrency` does not count.
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

from pgrouse.handlers import outcome
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.handlers.batch import Batch
from pgrouse.worker.child_process import DIED_UNSEEN
from pgrouse.worker.django_connections import after_a_coroutine, as_in_a_request
from pgrouse.handlers.handler import Handler, Mode
from pgrouse.worker.stop_reason import Why, is_closed
from pgrouse.client.message import Message
from pgrouse.worker.metrics_recorder import Meters
from pgrouse.handlers.outcome import Ended, Kind, Outcome

if TYPE_CHECKING:
    from pgrouse.worker.child_process import Children
    from pgrouse.crypto.message_crypto import Seals
    from pgrouse.worker.in_flight import Hand
    from pgrouse.worker.daemon_runtime import Scene

log = structlog.get_logger()


class Run:
    """A batch that runs.

    Attributes:
        why: why it was stopped from outside, if it was.
        ended: how its messages ended, once its handler has.
        has_thread: whether a thread has it, and keeps its place until it ends by itself.
    """

    __slots__ = ("batch", "ended", "has_thread", "task", "timer", "why")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.task: asyncio.Task[list[Ended]]
        self.timer: asyncio.TimerHandle | None = None
        self.why: Why | None = None
        self.ended: list[Ended] | None = None
        self.has_thread = False

    def stop(self, why: Why) -> None:
        """Cancel it; only the first reason counts."""
        if self.why is None:
            self.why = why
            self.task.cancel()

    def stopped(self) -> list[Ended]:
        """Return how its messages end now that it was stopped; of those that are lost nothing is settled."""
        return self.batch.timed_out() if self.why is Why.TIMED_OUT else self.batch.released()


class Batches:
    """Gathers the messages of one batch handler and runs it.

    Args:
        places: so many batches at once.
        threads: where sync handlers run.
        children: where handlers with isolation = "process" run.
        begin: told of what begins.
        settle: takes what ended.
        on_room: called when more can be taken after nothing could.
        meters: told of each batch that ran.
        seals: encrypts what handlers leave; nothing unless given.
    """

    def __init__(
        self,
        handler: Handler,
        places: int,
        hand: Hand,
        scene: Scene,
        threads: Executor,
        children: Children | None,
        begin: Callable[[list[Message]], None],
        settle: Callable[[Iterable[Ended]], None],
        on_room: Callable[[], None],
        meters: Meters,
        seals: Seals | None = None,
    ) -> None:
        assert handler.batching is not None  # noqa: S101 - that is what makes it a batch handler
        self.handler, self.places, self.batching = handler, places, handler.batching
        self.hand, self.scene, self.threads, self.children = hand, scene, threads, children
        self.begin, self.settle, self.on_room, self.meters = begin, settle, on_room, meters
        self.seals = seals
        self.gathered: list[Message] = []
        self.threads_busy = 0
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._runs: set[Run] = set()
        self._taken = 0
        self._stopping = False

    @property
    def acks_first(self) -> bool:
        """Whether messages are completed before the handler runs."""
        return self.handler.rules.policy is AckPolicy.ACK_FIRST

    @property
    def size(self) -> int:
        """How many messages of the topic may be in hand."""
        return self.places * self.batching.size

    @property
    def room(self) -> int:
        """How many messages can be taken now: what fills the free places. A batch that is not full takes its place all the same."""
        return max(0, (self.places - self._taken) * self.batching.size - len(self.gathered))

    @property
    def running(self) -> int:
        """How many batches run now."""
        return len(self._runs)

    def add(self, messages: list[Message]) -> None:
        """Take claimed messages in; run what is full, or has waited."""
        if not self.gathered:
            self._since = time.monotonic()
        self.gathered += messages
        if self._stopping:
            self.hand_back_gathered()
        else:
            self._start_ready()

    def has(self, message: Message) -> bool:
        """Whether a message waits or runs here, under this very claim."""
        return message in self.gathered or any(run.batch.ids.get(message.id) == message.claim_id for run in self._runs)

    def lost(self, message: Message) -> None:
        """This one is not ours any more, as the hand knows: it is not run. A batch that runs goes on for the others, if there are any."""
        before = self.room
        self.gathered = [each for each in self.gathered if each != message]
        if before == 0 and self.room > 0:
            self.on_room()
        for run in self._runs:
            if message.id in run.batch.ids and not run.batch.committed and not self._holds_any(run):
                run.stop(Why.LOST)

    def hand_back_gathered(self) -> None:
        """Give back what was not started, and from now on what a claim on its way still brings."""
        self._stopping = True
        gathered, self.gathered = self.gathered, []
        self._set_timer()
        self.settle(Ended(message, Kind.RELEASE) for message in gathered)

    def cancel_running(self) -> None:
        """Stop all batches; of those that obey what is not settled singly is given back."""
        for run in list(self._runs):
            run.stop(Why.DRAINED)

    def abandon_running(self) -> None:
        """Settle or give back what runs on although it was told to stop: the process is about to end."""
        for run in self._runs:
            self.settle(run.batch.released())

    def tasks(self) -> list[asyncio.Task[list[Ended]]]:
        """Return the tasks of the batches that run."""
        return [run.task for run in self._runs]

    def _holds_any(self, run: Run) -> bool:
        return any(self.hand.holds(message) for message in run.batch.messages)

    def _start_ready(self) -> None:
        """Run what is full or has waited long enough, as far as there are places."""
        while self._taken < self.places and self._is_ready():
            size = self.batching.size
            first, self.gathered = self.gathered[:size], self.gathered[size:]
            self._since = time.monotonic()
            self._start([message for message in first if self.hand.holds(message)])
        self._set_timer()

    def _is_ready(self) -> bool:
        waited = time.monotonic() - self._since >= self.batching.wait_s
        return len(self.gathered) >= self.batching.size or (waited and bool(self.gathered))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # Without a free place it is looked at when one becomes free.
        if self.gathered and self._taken < self.places:
            left = max(0.0, self._since + self.batching.wait_s - time.monotonic())
            self._timer = asyncio.get_running_loop().call_later(left, self._start_ready)

    def _start(self, messages: list[Message]) -> None:
        if not messages:
            return
        self.begin(messages)
        run = Run(Batch(self.handler, messages, self.scene, self.seals))
        self._taken += 1
        self._runs.add(run)
        run.task = asyncio.create_task(self._attempt(run), name="batch")
        # Not in the task itself: one that is cancelled before its first step never begins.
        run.task.add_done_callback(partial(self._done, run))

    def _done(self, run: Run, task: asyncio.Task[list[Ended]]) -> None:
        self._runs.discard(run)
        if run.timer is not None:
            run.timer.cancel()
        self.settle(self._ended(run, task))
        if not run.has_thread:
            self._free()

    def _ended(self, run: Run, task: asyncio.Task[list[Ended]]) -> list[Ended]:
        if task.cancelled():
            # One that has cancelled its own task and returned has ended all the same.
            return self._cancelled(run) if run.ended is None else run.ended
        error = task.exception()
        if error is None:
            return task.result()
        # A bug of ours, or an outcome that cannot even be told: it must not keep the messages in hand for ever.
        log.error(events.LOOP_BROKEN, loop="batch", topic=self.handler.topic, exc_info=error)
        described = outcome.describe(error)
        kind = type(error).__qualname__
        return [Ended(message, Kind.RETRY, error=described, error_type=kind) for message in run.batch.messages]

    def _cancelled(self, run: Run) -> list[Ended]:
        if run.why is None:
            # It was none of us: the batch has not been stopped, it failed.
            return run.batch.conclude(asyncio.CancelledError())
        if run.why is Why.DRAINED and self.acks_first and run.batch.committed:
            run.batch.tell_after_completion("the handler was stopped: the daemon ends")
        return run.stopped()

    def _free(self) -> None:
        """A place is free again; if there was no room, claims have passed the topic over."""
        before = self.room
        self._taken -= 1
        self._start_ready()
        if before == 0 and self.room > 0:
            self.on_room()

    def _limit(self, run: Run) -> None:
        """The handler starts: from now on its time counts."""
        if run.batch.limit_s is None or run not in self._runs:
            return
        now = time.monotonic()
        for message in run.batch.messages:
            self.hand.started(message, now)
        run.timer = asyncio.get_running_loop().call_later(run.batch.limit_s, run.stop, Why.TIMED_OUT)

    async def _attempt(self, run: Run) -> list[Ended]:
        run.ended = await self._run_completed(run) if self.acks_first else self._closed(await self._dispatch(run))
        return run.ended

    async def _run_completed(self, run: Run) -> list[Ended]:
        """Complete the messages, then run the handler: whatever becomes of that is only logged."""
        batch = run.batch
        lost = await self.scene.complete_first(batch.messages)
        for message in batch.messages:
            if message.id in lost:
                log.warning(
                    events.MESSAGE_LOCK_LOST, message_id=message.id, topic=message.topic, attempt=message.attempt
                )
        batch.begin_completed(lost)
        ended = self._closed(await self._dispatch(run)) if batch.messages else []
        if error := next((each.error for each in ended if each.error is not None), None):
            batch.tell_after_completion(error)
        return []

    def _closed(self, ended: list[Ended]) -> list[Ended]:
        """Return the ends as they may be kept, before anybody is told of them."""
        return ended if self.seals is None else [self.seals.close(each) for each in ended]

    async def _dispatch(self, run: Run) -> list[Ended]:
        match self.handler.mode:
            case Mode.ASYNC:
                return await self._on_the_loop(run)
            case Mode.THREAD:
                return await self._in_a_thread(run)
            case Mode.PROCESS:
                return await self._in_a_child(run)

    async def _on_the_loop(self, run: Run) -> list[Ended]:
        said: object
        self._limit(run)
        began = time.monotonic()
        try:
            said = run.batch.call()
            if run.batch.given:
                said = await said  # type: ignore[misc]
        except BaseException as error:  # sys.exit in a handler fails its messages, not the daemon
            if is_closed():
                raise
            if run.why is not None and not isinstance(error, Outcome):
                # What it raises because it was stopped is no failure of its own.
                raise asyncio.CancelledError from error
            # If it was cancelled, then by itself.
            said = error
        finally:
            self._ran(run.batch, began)
            after_a_coroutine()
        return run.batch.conclude(said)

    def _ran(self, batch: Batch, began: float, ran_s: float | None = None) -> None:
        """A call is over, if there was one: of a batch in which nothing fits the handler is not called. Any thread may say so."""
        if batch.given:
            self.meters.ran(self.handler.topic, began, ran_s)

    async def _in_a_thread(self, run: Run) -> list[Ended]:
        loop = asyncio.get_running_loop()
        future = self.threads.submit(self._call, run.batch, partial(loop.call_soon_threadsafe, self._limit, run))
        # A thread cannot be stopped: its place stays taken until it ends by itself, even if the batch has timed out.
        run.has_thread = True
        self.threads_busy += 1
        future.add_done_callback(lambda _: loop.is_closed() or loop.call_soon_threadsafe(self._thread_ended))
        return await asyncio.wrap_future(future)

    def _call(self, batch: Batch, begins: Callable[[], object]) -> list[Ended]:
        """Run a sync batch handler, in its thread."""
        begins()
        began = time.monotonic()
        said: object
        try:
            with as_in_a_request():
                said = batch.call()
        except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails its messages, not the thread
            said = error
        finally:
            self._ran(batch, began)
        return batch.conclude(said)

    def _thread_ended(self) -> None:
        self.threads_busy -= 1
        self._free()

    async def _in_a_child(self, run: Run) -> list[Ended]:
        began = time.monotonic()
        ended = await self._from_a_child(run)
        ran_s = next((each.ran_s for each in ended if each.ran_s is not None), None)
        # What fits only the child knows.
        self.meters.ran(self.handler.topic, began, ran_s)
        return ended

    async def _from_a_child(self, run: Run) -> list[Ended]:
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
            return batch.died(error, DIED_UNSEEN)
        except Exception as error:  # noqa: BLE001 - whatever could not travel between the processes
            return batch.conclude(error)
