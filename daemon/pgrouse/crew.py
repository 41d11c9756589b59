"""The worker loops that run handlers: `concurrency` of them, each takes a message, runs its handler, hands the outcome to the settler.

A worker loop is a task of its own, so that time-outs and cancellation in a handler mean that handler. There is no task per message:
handlers that never wait are run one after the other by the same loop, and the next loop is woken only when one of them does wait.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import structlog
from pebble import ProcessExpired

from pgrouse import child, events, outcome
from pgrouse.claimer import Room
from pgrouse.context import Context
from pgrouse.handler import Handler, Mode
from pgrouse.message import Message
from pgrouse.outcome import Ended, Kind

if TYPE_CHECKING:
    from pgrouse import config
    from pgrouse.hand import Hand
    from pgrouse.scene import Scene
    from pgrouse.settler import Settler

log = structlog.get_logger()

# A loop that has run handlers for so long without waiting lets everything else have a turn.
TURN_S = 0.005
CLOSE_S = 2.0


class Why(Enum):
    """Why a running handler is stopped from outside."""

    TIMED_OUT = "timed_out"
    LOST = "lost"
    DRAINED = "drained"


class Crew:
    """Runs the handlers of one daemon.

    Args:
        handlers: by topic.
        settings: the section `[worker]`.
        children: by topic, where isolation = "process".
        on_room: called when a topic that was full has a place again.
    """

    def __init__(
        self,
        handlers: dict[str, Handler],
        settings: config.Worker,
        hand: Hand,
        settler: Settler,
        scene: Scene,
        children: dict[str, child.Children],
        on_room: Callable[[], None],
    ) -> None:
        self.handlers, self.settings, self.hand, self.settler, self.scene = handlers, settings, hand, settler, scene
        self.children = children
        self.on_room = on_room
        self.threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="handler")
        self.waiting: deque[Message] = deque()
        self._running: dict[tuple[int, int], tuple[Message, asyncio.Task[None]]] = {}
        self._why: dict[tuple[int, int], Why] = {}
        self._timers: dict[tuple[int, int], asyncio.TimerHandle] = {}
        self._resting: list[asyncio.Future[None]] = []
        self._loops: set[asyncio.Task[None]] = set()
        self.topics = sorted(handlers)
        self._bounds = {topic: bound for topic in handlers if (bound := self._bound(handlers[topic])) is not None}
        self._taken: Counter[str] = Counter()
        self._threads_busy = 0
        self._pausing = 0
        self._stopping = False

    def room(self) -> Room:
        """Return what can be taken now."""
        settings = self.settings
        limit = min(
            settings.concurrency + settings.prefetch - len(self.waiting) - len(self._running),
            settings.fetch_batch_size,
            # What is done but not settled yet holds new claims back, so that an outage of the database does not fill the memory.
            2 * settings.concurrency + settings.fetch_batch_size - len(self.hand),
        )
        if not self._bounds:
            return Room(self.topics, None, limit)
        free = {
            topic: self._bounds[topic] - self._taken[topic] if topic in self._bounds else None for topic in self.topics
        }
        topics = [topic for topic, slots in free.items() if slots is None or slots > 0]
        return Room(topics, [free[topic] for topic in topics], limit)

    def add(self, claimed: list[Message], claimed_at: float) -> None:
        """Take claimed messages in and see that they are run."""
        self.hand.add(claimed, claimed_at)
        if self._bounds:
            self._taken.update(message.topic for message in claimed if message.topic in self._bounds)
        self.waiting.extend(claimed)
        if self._stopping:
            self.hand_back_waiting()
        self._summon()

    def lose(self, message_ids: Iterable[int]) -> None:
        """These are not ours any more: stop their handlers, settle nothing. What has ended already learns it when it is settled."""
        for message in filter(None, map(self.hand.find, message_ids)):
            if (message.id, message.claim_id) in self._running or message in self.waiting:
                self.hand.let_go([message])
                log.warning(
                    events.MESSAGE_LOCK_LOST, message_id=message.id, topic=message.topic, attempt=message.attempt
                )
                self._stop(message, Why.LOST)

    def hand_back_waiting(self) -> None:
        """Give back what was claimed and not started, and from now on what a claim on its way still brings."""
        self._stopping = True
        while self.waiting:
            message = self.waiting.popleft()
            self._finish(message, Ended(message, Kind.RELEASE))

    def cancel_running(self) -> None:
        """Stop all handlers; those that obey give their messages back."""
        for key in list(self._running):
            self._stop_key(key, Why.DRAINED)

    @property
    def running(self) -> int:
        """How many handlers run now."""
        return len(self._running)

    def abandon_running(self) -> None:
        """Give back what runs on although it was told to stop: the process is about to end, and it with it."""
        for message, _ in self._running.values():
            if self.hand.holds(message):
                self.settler.add(Ended(message, Kind.RELEASE))

    async def close(self) -> None:
        """End the worker loops and the children. What does not end is left behind, for the end of the process."""
        for loop in self._loops:
            loop.cancel()
        if self._loops:
            await asyncio.wait(self._loops, timeout=CLOSE_S)
        self.threads.shutdown(wait=False, cancel_futures=True)
        await asyncio.gather(*(asyncio.to_thread(each.close) for each in self.children.values()))

    @property
    def left_behind(self) -> bool:
        """Whether handlers run on that cannot be stopped: threads, or coroutines that swallow their cancellation."""
        return self._threads_busy > 0 or any(not loop.done() for loop in self._loops)

    def _bound(self, handler: Handler) -> int | None:
        """How many messages of a topic may be in hand at once; None = as many as the worker's."""
        if handler.mode is Mode.THREAD:
            return min(handler.concurrency or self.settings.threads, self.settings.threads)
        return handler.concurrency

    def _summon(self) -> None:
        """Wake one worker loop if messages wait, and look again when it has come to its first wait: most handlers never do."""
        if not self.waiting or self._pausing:
            return
        if self._resting:
            self._resting.pop().set_result(None)
        elif len(self._loops) < self.settings.concurrency:
            self._loops.add(asyncio.create_task(self._work(), name="handler"))
        else:
            return
        asyncio.get_running_loop().call_soon(self._summon)

    async def _work(self) -> None:
        """One worker loop."""
        me = asyncio.current_task()
        assert me is not None  # noqa: S101 - a coroutine of a task
        turn_began = time.monotonic()
        while True:
            while not self.waiting:
                await self._rest()
                turn_began = time.monotonic()
            message = self.waiting.popleft()
            if self.hand.holds(message):
                ended = await self._attempt(message, me)
                self._finish(message, ended, started=True)
            else:
                self._finish(message, None)
            if time.monotonic() - turn_began > TURN_S:
                await self._pause()
                turn_began = time.monotonic()

    async def _pause(self) -> None:
        """Let everything else have a turn, but no further loop: they would compute one after the other, each for a turn of its own."""
        self._pausing += 1
        await asyncio.sleep(0)
        self._pausing -= 1
        asyncio.get_running_loop().call_soon(self._summon)

    async def _rest(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resting.append(future)
        await future

    async def _attempt(self, message: Message, me: asyncio.Task[None]) -> Ended | None:
        """Run one message's handler within its time; None = there is nothing to settle."""
        key = message.id, message.claim_id
        self._running[key] = message, me
        try:
            return await self._run(self.handlers[message.topic], message)
        except asyncio.CancelledError:
            if key not in self._why:
                raise
            return _stopped(message, self._why[key])
        except Exception as error:
            # A bug of ours: it must not cost the worker loop, nor keep the message in hand for ever.
            log.exception(events.LOOP_BROKEN, loop="handler", message_id=message.id, topic=message.topic)
            return Ended(message, Kind.RETRY, error=outcome.describe(error))
        finally:
            del self._running[key]
            if self._why.pop(key, None) is not None:
                # Also when the handler swallowed it: the next one must not find itself cancelled.
                me.uncancel()
            if timer := self._timers.pop(key, None):
                timer.cancel()

    def _limit(self, message: Message) -> None:
        """The handler starts: from now on its run_timeout counts."""
        key = message.id, message.claim_id
        if message.run_timeout_s is not None and key in self._running:
            self.hand.started(message, time.monotonic())
            self._timers[key] = asyncio.get_running_loop().call_later(
                message.run_timeout_s, self._stop, message, Why.TIMED_OUT
            )

    async def _run(self, handler: Handler, message: Message) -> Ended | None:
        match handler.mode:
            case Mode.ASYNC:
                return await self._on_the_loop(handler, message)
            case Mode.THREAD:
                return await self._in_a_thread(handler, message)
            case Mode.PROCESS:
                return await self._in_a_child(handler, message)

    async def _on_the_loop(self, handler: Handler, message: Message) -> Ended | None:
        context = Context(message, self.scene) if handler.arguments > 1 else None
        said: object
        self._limit(message)
        try:
            said = await handler.call(message, context)
        except BaseException as error:  # sys.exit in a handler fails the message, not the daemon
            if _comes_from_outside(error):
                raise
            if (message.id, message.claim_id) in self._why and not isinstance(error, outcome.Outcome):
                # What it raises because it was stopped is no failure of its own.
                raise asyncio.CancelledError from error
            said = error
        return _said(message, said, context)

    async def _in_a_thread(self, handler: Handler, message: Message) -> Ended | None:
        loop = asyncio.get_running_loop()
        # It may wait for a thread first.
        begins = partial(loop.call_soon_threadsafe, self._limit, message) if message.run_timeout_s is not None else None
        future = self.threads.submit(_call, handler, message, self.scene, begins)
        # A thread cannot be stopped: the message's place stays taken until it ends by itself, even if the message has timed out.
        self._threads_busy += 1
        future.add_done_callback(
            lambda _: loop.is_closed() or loop.call_soon_threadsafe(self._thread_ended, message.topic)
        )
        return await asyncio.wrap_future(future)

    def _thread_ended(self, topic: str) -> None:
        self._threads_busy -= 1
        self._free(topic)

    async def _in_a_child(self, handler: Handler, message: Message) -> Ended | None:
        try:
            return await asyncio.wrap_future(self.children[handler.topic].schedule(message))
        except TimeoutError:
            return outcome.timed_out(message)
        except ProcessExpired as error:
            log.warning(events.CHILD_DIED, message_id=message.id, topic=message.topic, exit_code=error.exitcode)
            return Ended(message, Kind.RETRY, error=f"the handler's process died with exit code {error.exitcode}")
        except Exception as error:  # noqa: BLE001 - whatever could not travel between the processes
            return Ended(message, Kind.RETRY, error=outcome.describe(error))

    def _stop(self, message: Message, why: Why) -> None:
        self._stop_key((message.id, message.claim_id), why)

    def _stop_key(self, key: tuple[int, int], why: Why) -> None:
        if key in self._running and key not in self._why:
            self._why[key] = why
            self._running[key][1].cancel()

    def _finish(self, message: Message, ended: Ended | None, *, started: bool = False) -> None:
        """The message leaves the crew; a thread frees its place itself."""
        if not (started and self.handlers[message.topic].mode is Mode.THREAD):
            self._free(message.topic)
        if ended is None:
            self.hand.let_go([message])
            self.settler.signals.set()
            return
        if ended.error is not None:
            _tell(ended)
        self.settler.add(ended)

    def _free(self, topic: str) -> None:
        """One place of a topic is free again; if it had none, claims have passed it over."""
        if topic not in self._bounds:
            return
        self._taken[topic] -= 1
        if self._taken[topic] == self._bounds[topic] - 1:
            self.on_room()


def _comes_from_outside(error: BaseException) -> bool:
    """Whether the task was cancelled or closed, rather than that the handler raised CancelledError or GeneratorExit by itself."""
    me = asyncio.current_task()
    return me is None or (isinstance(error, asyncio.CancelledError) and me.cancelling() > 0)


def _stopped(message: Message, why: Why) -> Ended | None:
    """Return how an attempt ends that was stopped from outside."""
    match why:
        case Why.TIMED_OUT:
            return outcome.timed_out(message)
        case Why.DRAINED:
            return Ended(message, Kind.RELEASE)
        case Why.LOST:
            return None


def _call(handler: Handler, message: Message, scene: Scene, begins: Callable[[], object] | None) -> Ended | None:
    """Run a sync handler, in its thread."""
    if begins is not None:
        begins()
    context = Context(message, scene)
    said: object
    try:
        said = handler.call(message, context)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails the message, not the thread
        said = error
    return _said(message, said, context)


def _said(message: Message, said: object, context: Context | None) -> Ended | None:
    """Return what to settle; nothing if the handler completed its message in its own transaction."""
    if context is None or not context.completed:
        return outcome.ended(message, said)
    if said is not None:
        error = (
            outcome.describe(said)
            if isinstance(said, BaseException)
            else "it returned an output: set ctx.output in the transaction"
        )
        log.warning(events.MESSAGE_ENDED_AFTER_COMPLETION, message_id=message.id, topic=message.topic, reason=error)
    return None


TOLD = {
    Kind.COMPLETE: events.MESSAGE_OUTPUT_DROPPED,
    Kind.RETRY: events.ATTEMPT_FAILED,
    Kind.EXPIRE: events.ATTEMPT_TIMED_OUT,
    Kind.REJECT: events.MESSAGE_REJECTED,
    Kind.FAIL: events.MESSAGE_FAILED,
}


def _tell(ended: Ended) -> None:
    """Log an attempt that did not go well: the last line of its error, never its payload."""
    message = ended.message
    reason = (ended.error or "").rstrip().rpartition("\n")[2]
    log.warning(TOLD[ended.kind], message_id=message.id, topic=message.topic, attempt=message.attempt, reason=reason)
