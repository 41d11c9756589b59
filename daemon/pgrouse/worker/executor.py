"""The worker loops that run handlers: `concurrency` of them, each takes a message, runs its handler, hands the outcome to the settler.

A worker loop is a task of its own, so that time-outs and cancellation in a handler mean that handler. There is no task per message:
handlers that never wait are run one after the other by the same loop, and the next loop is woken only when one of them does wait.
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

from pgrouse.worker import child_process as child

from pgrouse.handlers import outcome
from pgrouse.handlers.ack_rules import AckPolicy
from pgrouse.worker.batch_runner import Batches
from pgrouse.worker.claim_planner import Room
from pgrouse.handlers.context import Context
from pgrouse.worker.django_connections import after_a_coroutine, as_in_a_request
from pgrouse.handlers.handler import Handler, Mode
from pgrouse.worker.stop_reason import Why, is_closed
from pgrouse.client.message import Message
from pgrouse.worker.metrics_recorder import Meters, Result
from pgrouse.handlers.outcome import Ended, Kind
from pgrouse.handlers.publish_tracker import checked, promised_by
from pgrouse.worker.schema_cache import TopicSchemas

if TYPE_CHECKING:
    from pgrouse.config import config
    from pgrouse.crypto.message_crypto import Seals
    from pgrouse.worker.in_flight import Hand
    from pgrouse.worker.daemon_runtime import Scene
    from pgrouse.worker.settle_buffer import Settler

log = structlog.get_logger()

# A loop that has run handlers for so long without waiting lets everything else have a turn.
TURN_S = 0.005
TOPIC = attrgetter("topic")
Way = Callable[[Handler, Message], Coroutine[Any, Any, Ended | None]]
CLOSE_S = 2.0


class Crew:
    """Runs the handlers of one daemon.

    Args:
        handlers: by topic.
        settings: the section `[worker]`.
        children: by topic, where isolation = "process".
        on_room: called when a topic that was full has a place again.
        schemas: what the topics ask of their payloads; nothing unless given.
        seals: decrypts what handlers get, and encrypts what they leave; nothing unless given.
    """

    threads_type: Callable[..., ThreadPoolExecutor] = ThreadPoolExecutor
    batches_type: Callable[..., Batches] = Batches

    def __init__(
        self,
        handlers: dict[str, Handler],
        settings: config.Worker,
        hand: Hand,
        settler: Settler,
        scene: Scene,
        children: dict[str, child.Children],
        on_room: Callable[[], None],
        schemas: TopicSchemas | None = None,
        seals: Seals | None = None,
    ) -> None:
        self.handlers, self.settings, self.hand, self.settler, self.scene = handlers, settings, hand, settler, scene
        self.children, self.meters = children, settler.meters
        self.on_room = on_room
        self.schemas = TopicSchemas() if schemas is None else schemas
        self.seals = seals
        self.threads = self.threads_type(settings.threads, thread_name_prefix="handler")
        self.waiting: deque[Message] = deque()
        self._running: dict[tuple[int, int], tuple[Message, asyncio.Task[None]]] = {}
        self._why: dict[tuple[int, int], Why] = {}
        self._timers: dict[tuple[int, int], asyncio.TimerHandle] = {}
        self._resting: list[asyncio.Future[None]] = []
        self._loops: set[asyncio.Task[None]] = set()
        self.topics = sorted(handlers)
        self._batches = {topic: self._batches_of(each) for topic, each in handlers.items() if each.batching is not None}
        self._some_wait = any(each.batching.wait_s for each in self._batches.values())
        self._batch_size = sum(each.size for each in self._batches.values())
        self._singles = [topic for topic in self.topics if topic not in self._batches]
        self._bounds = {topic: bound for topic in self._singles if (bound := self._bound(handlers[topic])) is not None}
        self._add_run = {topic: self.meters.of(topic).runs.add for topic in self.topics}
        self._ways = {
            topic: self._run_completed if each.rules.policy is AckPolicy.ACK_FIRST else self._way(each)
            for topic, each in handlers.items()
        }
        self._taken: Counter[str] = Counter()
        self._threads_busy = 0
        self._pausing = 0
        self._stopping = self._closing = False
        # Messages that waited for a place when they were claimed: their run is counted when they begin.
        self._uncounted: set[tuple[int, int]] = set()

    def room(self) -> Room:
        """Return what can be taken now."""
        settings = self.settings
        limit = min(
            settings.concurrency + settings.prefetch - len(self.waiting) - len(self._running),
            settings.fetch_batch_size,
            # What is done but not settled yet holds new claims back, so that an outage of the database does not fill the memory.
            2 * (settings.concurrency + self._batch_size) + settings.fetch_batch_size - len(self.hand),
        )
        batches = self._room_for_batches() if self._batches else None
        places = settings.concurrency - len(self.waiting) - len(self._running) if settings.prefetch else None
        if not self._bounds:
            return Room(self._singles, None, limit, batches, places)
        free = {
            topic: self._bounds[topic] - self._taken[topic] if topic in self._bounds else None
            for topic in self._singles
        }
        topics = [topic for topic, slots in free.items() if slots is None or slots > 0]
        return Room(topics, [free[topic] for topic in topics], limit, batches, places)

    def add(self, claimed: list[Message], claimed_at: float, waiting: Iterable[Message] = ()) -> None:
        """Take claimed messages in and see that they are run.

        Args:
            claimed: the messages.
            claimed_at: when their claim was sent.
            waiting: those of them whose run is not counted yet.
        """
        unreadable: list[Ended] = []
        if self.seals is not None and self._batches:
            claimed, unreadable = self._open_batches(self.seals, claimed)
        self.hand.add(claimed, claimed_at)
        if unreadable:
            self.hand.add([each.message for each in unreadable], claimed_at)
            self._settle(unreadable)
        self._uncounted.update((each.id, each.claim_id) for each in waiting if each.topic not in self._batches)
        if self._batches:
            claimed = self._gather(claimed)
        if self._bounds:
            self._taken.update(message.topic for message in claimed if message.topic in self._bounds)
        self.waiting.extend(claimed)
        if self._stopping:
            self.hand_back_waiting()
        self._summon()

    def lose(self, messages: Iterable[Message]) -> None:
        """These are not ours any more: stop their handlers, settle nothing. What has ended already learns it when it is settled.

        One that was claimed again meanwhile is ours under its new claim.
        """
        for message in messages:
            if self.hand.find(message.id) is None:
                continue
            batches = self._batches.get(message.topic)
            if batches.has(message) if batches else self._has(message):
                self.hand.let_go([message])
                self.meters.ended([message], Result.LOST)
                log.warning(
                    events.MESSAGE_LOCK_LOST, message_id=message.id, topic=message.topic, attempt=message.attempt
                )
                if batches:
                    batches.lost(message)
                else:
                    self._stop(message, Why.LOST)

    def hear(self, children: child.Children) -> None:
        """Take in what handlers in children say of their messages while they run."""
        for said in children.hear():
            message = self.hand.find(said["id"])
            if message is None or message.claim_id != said["claim_id"]:
                continue
            if "progress" in said:
                self.hand.progress.note(message, said["progress"])
            else:
                self.hand.extend(message, timedelta(seconds=said["extend_s"]))

    def hand_back_waiting(self) -> None:
        """Give back what was claimed and not started, and from now on what a claim on its way still brings."""
        self._stopping = True
        while self.waiting:
            message = self.waiting.popleft()
            self._finish(message, Ended(message, Kind.RELEASE))
        for batches in self._batches.values():
            batches.hand_back_gathered()

    def cancel_running(self) -> None:
        """Stop all handlers; those that obey give their messages back."""
        for key in list(self._running):
            self._stop_key(key, Why.DRAINED)
        for batches in self._batches.values():
            batches.cancel_running()

    @property
    def running(self) -> int:
        """How many handlers run now; one that has a batch counts once."""
        return len(self._running) + sum(each.running for each in self._batches.values())

    @property
    def not_begun(self) -> int:
        """How many messages wait for a place, or for their batch to become full."""
        return len(self.waiting) + sum(len(each.gathered) for each in self._batches.values())

    def abandon_running(self) -> None:
        """Give back what runs on although it was told to stop: the process is about to end, and it with it."""
        for message, _ in self._running.values():
            if self.hand.holds(message):
                self.settler.add(Ended(message, Kind.RELEASE, ran=True))
        for batches in self._batches.values():
            batches.abandon_running()

    async def close(self) -> None:
        """End the worker loops and the children. What does not end is left behind, for the end of the process."""
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
    def left_behind(self) -> bool:
        """Whether handlers run on that cannot be stopped: threads, or coroutines that swallow their cancellation."""
        threads = self._threads_busy + sum(each.threads_busy for each in self._batches.values())
        return threads > 0 or any(not task.done() for task in self._tasks())

    def _tasks(self) -> list[asyncio.Task[Any]]:
        return [*self._loops, *(task for each in self._batches.values() for task in each.tasks())]

    def _bound(self, handler: Handler) -> int | None:
        """How many messages of a topic may be in hand at once; None = as many as the worker's."""
        if handler.mode is Mode.THREAD:
            return min(handler.concurrency or self.settings.threads, self.settings.threads)
        return handler.concurrency

    def _batches_of(self, handler: Handler) -> Batches:
        # A batch handler has a concurrency; a thread needs one of the threads.
        places = self._bound(handler) or 1
        children = self.children.get(handler.topic)
        return self.batches_type(
            handler,
            places,
            self.hand,
            self.scene,
            self.threads,
            children,
            self._begin,
            self._settle,
            self._tell_room,
            self.meters,
            self.seals,
        )

    def _room_for_batches(self) -> Room:
        slots = {topic: each.room for topic, each in self._batches.items() if each.room}
        limit = min(sum(slots.values()), self.settings.fetch_batch_size)
        return Room(list(slots), list(slots.values()), limit, places=0 if self._some_wait else None)

    def _gather(self, claimed: list[Message]) -> list[Message]:
        """Hand the messages of batch handlers on; return the others."""
        singles: list[Message] = []
        for topic, messages in groupby(claimed, TOPIC):
            if topic in self._batches:
                self._batches[topic].add(self._fitting(list(messages)))
            else:
                singles += messages
        return singles

    def _open_batches(self, seals: Seals, claimed: list[Message]) -> tuple[list[Message], list[Ended]]:
        """Decrypt the messages of batch handlers, before anybody compares them with others; return all, and the ends of those that cannot be read."""
        opened: list[Message] = []
        unreadable: list[Ended] = []
        for topic, messages in groupby(claimed, TOPIC):
            if topic in self._batches:
                readable, ended = seals.open_all(list(messages))
                opened += readable
                unreadable += ended
            else:
                opened += messages
        return opened, unreadable

    def _fitting(self, messages: list[Message]) -> list[Message]:
        """Reject what does not fit the topic's payload_schema; return the others."""
        if not self.schemas:
            return messages
        misfits = {message.id: misfit for message in messages if (misfit := self.schemas.misfit(message))}
        self._settle(Ended(m, Kind.REJECT, error=misfits[m.id]) for m in messages if m.id in misfits)
        return [message for message in messages if message.id not in misfits]

    def _begin(self, messages: list[Message]) -> None:
        """A batch begins: if some batches wait to become full, their runs were not counted when they were claimed."""
        for message in messages if self._some_wait else ():
            self.settler.begin(message)

    def _settle(self, ended: Iterable[Ended]) -> None:
        """Take in how the messages of a batch ended. Of those that are not ours any more nothing is settled."""
        ours = [each for each in ended if self.hand.holds(each.message)]
        if self.seals is not None:
            ours = [self.seals.close(each) for each in ours]
        for each in ours:
            self.settler.add(each)
        _tell_batch(ours)
        self.settler.signals.set()

    def _tell_room(self) -> None:
        self.on_room()

    def _has(self, message: Message) -> bool:
        return (message.id, message.claim_id) in self._running or message in self.waiting

    def _summon(self) -> None:
        """Wake one worker loop if messages wait, and look again when it has come to its first wait: most handlers never do."""
        if not self.waiting or self._pausing:
            return
        if self._resting:
            resting = self._resting.pop()
            # Else it is about to look by itself.
            if not resting.done():
                resting.set_result(None)
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
        while not self._closing:
            while not self.waiting:
                await self._rest(me)
                turn_began = time.monotonic()
            message = self.waiting.popleft()
            if self.hand.holds(message):
                ended = await self._attempt(message, me)
                self._finish(message, ended, started=True)
            else:
                self._finish(message, None)
            if me.cancelling():
                # The handler swallowed that it was stopped, or has cancelled its own task: that must not hit the next one.
                await self._undisturbed(me, asyncio.sleep(0))
            if time.monotonic() - turn_began > TURN_S:
                await self._pause(me)
                turn_began = time.monotonic()

    async def _pause(self, me: asyncio.Task[None]) -> None:
        """Let everything else have a turn, but no further loop: they would compute one after the other, each for a turn of its own."""
        self._pausing += 1
        await self._undisturbed(me, asyncio.sleep(0))
        self._pausing -= 1
        asyncio.get_running_loop().call_soon(self._summon)

    async def _rest(self, me: asyncio.Task[None]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resting.append(future)
        await self._undisturbed(me, future)
        if future.cancelled() and future in self._resting:
            self._resting.remove(future)

    async def _undisturbed(self, me: asyncio.Task[None], event: Awaitable[None]) -> None:
        """Wait between two messages. A cancellation that arrives here and is not the end was left behind by a handler: it ends here."""
        try:
            await event
        except asyncio.CancelledError:
            if self._closing:
                raise
        while me.cancelling():
            me.uncancel()

    async def _attempt(self, message: Message, me: asyncio.Task[None]) -> Ended | None:
        """Run one message's handler within its time; None = there is nothing to settle."""
        key = message.id, message.claim_id
        self._running[key] = message, me
        if key in self._uncounted:
            self.settler.begin(message)
        try:
            ended = self._sealed(await self._run(self.handlers[message.topic], message))
        except asyncio.CancelledError as error:
            if key in self._why:
                return _stopped(message, self._why[key])
            # It is not ours: what a handler left behind has hit the wait for a thread, a child or the database.
            ended = self._sealed(self.handlers[message.topic].rules.ended(message, error))
        except Exception as error:
            # A bug of ours: it must not cost the worker loop, nor keep the message in hand for ever.
            log.exception(events.LOOP_BROKEN, loop="handler", message_id=message.id, topic=message.topic)
            ended = self._sealed(
                Ended(message, Kind.RETRY, error=outcome.describe(error), error_type=type(error).__qualname__)
            )
        finally:
            del self._running[key]
            self._why.pop(key, None)
            if timer := self._timers.pop(key, None):
                timer.cancel()
        return ended

    def _sealed(self, ended: Ended | None) -> Ended | None:
        return ended if ended is None or self.seals is None else self.seals.close(ended)

    def _limit(self, message: Message) -> None:
        """The handler starts: from now on its run_timeout counts."""
        key = message.id, message.claim_id
        if message.run_timeout_s is not None and key in self._running:
            self.hand.started(message, time.monotonic())
            self._timers[key] = asyncio.get_running_loop().call_later(
                message.run_timeout_s, self._stop, message, Why.TIMED_OUT
            )

    def _run(self, handler: Handler, message: Message) -> Coroutine[Any, Any, Ended | None]:
        # No coroutine of its own, and nothing decided that is known beforehand: it would cost every message.
        if self.seals is not None:
            opened = self.seals.open(message)
            if isinstance(opened, Ended):
                return _at_once(opened)
            message = opened
        if self.schemas and (misfit := self.schemas.misfit(message)):
            return _at_once(Ended(message, Kind.REJECT, error=misfit))
        return self._ways[message.topic](handler, message)

    async def _run_completed(self, handler: Handler, message: Message) -> None:
        """Complete the message, then run its handler: whatever becomes of that is only logged."""
        if await self.scene.complete_first([message]):
            log.warning(events.MESSAGE_LOCK_LOST, message_id=message.id, topic=message.topic, attempt=message.attempt)
            return
        try:
            ended = await self._way(handler)(handler, message)
        except asyncio.CancelledError:
            why = self._why.get((message.id, message.claim_id))
            _tell_after_completion(message, f"the handler was stopped: {why.value if why else 'cancelled'}")
        else:
            ended = self._sealed(ended)
            if ended is not None and ended.error is not None:
                _tell_after_completion(message, ended.error)

    def _way(self, handler: Handler) -> Way:
        match handler.mode:
            case Mode.ASYNC:
                return self._on_the_loop
            case Mode.THREAD:
                return self._in_a_thread
            case Mode.PROCESS:
                return self._in_a_child

    async def _on_the_loop(self, handler: Handler, message: Message) -> Ended | None:
        context = _context(handler, message, self.scene) if handler.arguments > 1 else None
        said: object
        self._limit(message)
        began = time.monotonic()
        try:
            said = await handler.call(message, context)
        except BaseException as error:  # sys.exit in a handler fails the message, not the daemon
            if is_closed():
                raise
            if (message.id, message.claim_id) in self._why and not isinstance(error, outcome.Outcome):
                # What it raises because it was stopped is no failure of its own.
                raise asyncio.CancelledError from error
            # If it was cancelled, then by itself.
            said = error
        finally:
            self._add_run[message.topic](time.monotonic() - began)
            after_a_coroutine()
        return _said(handler, message, said, context, self.seals)

    async def _in_a_thread(self, handler: Handler, message: Message) -> Ended | None:
        loop = asyncio.get_running_loop()
        # It may wait for a thread first.
        begins = partial(loop.call_soon_threadsafe, self._limit, message) if message.run_timeout_s is not None else None
        future = self.threads.submit(_call, handler, message, self.scene, begins, self.meters, self.seals)
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
        began = time.monotonic()
        ended = await self._from_a_child(handler, message)
        self.meters.ran(message.topic, began, ended.ran_s)
        return ended

    async def _from_a_child(self, handler: Handler, message: Message) -> Ended:
        try:
            return await self.children[handler.topic].run(message)
        except TimeoutError:
            return outcome.timed_out(message)
        except ProcessExpired as error:
            log.warning(events.CHILD_DIED, message_id=message.id, topic=message.topic, exit_code=error.exitcode)
            return handler.rules.failed(message, error, f"the handler's process died with exit code {error.exitcode}")
        except BrokenProcessPool as error:
            log.warning(events.CHILD_DIED, message_id=message.id, topic=message.topic, exit_code=None)
            return handler.rules.failed(message, error, child.DIED_UNSEEN)
        except Exception as error:  # noqa: BLE001 - whatever could not travel between the processes
            return Ended(message, Kind.RETRY, error=outcome.describe(error), error_type=type(error).__qualname__)

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
        if self._uncounted:
            self._uncounted.discard((message.id, message.claim_id))
        if ended is None:
            self.hand.let_go([message])
            self.settler.signals.set()
            return
        if ended.error is not None:
            _tell(ended)
        for event, why in ended.remarks:
            log.error(event, message_id=message.id, topic=message.topic, attempt=message.attempt, reason=why)
        if self.hand.progress:
            ended.progress = self.hand.progress.last(message)
        self.settler.add(ended)

    def _free(self, topic: str) -> None:
        """One place of a topic is free again; if it had none, claims have passed it over."""
        if topic not in self._bounds:
            return
        self._taken[topic] -= 1
        if self._taken[topic] == self._bounds[topic] - 1:
            self.on_room()


def _stopped(message: Message, why: Why) -> Ended | None:
    """Return how an attempt ends that was stopped from outside."""
    match why:
        case Why.TIMED_OUT:
            return outcome.timed_out(message)
        case Why.DRAINED:
            return Ended(message, Kind.RELEASE, ran=True)
        case Why.LOST:
            return None


def _call(
    handler: Handler,
    message: Message,
    scene: Scene,
    begins: Callable[[], object] | None,
    meters: Meters,
    seals: Seals | None,
) -> Ended | None:
    """Run a sync handler, in its thread."""
    if begins is not None:
        begins()
    context = _context(handler, message, scene)
    began = time.monotonic()
    said: object
    try:
        with as_in_a_request():
            said = handler.call(message, context)
    except BaseException as error:  # noqa: BLE001 - sys.exit in a handler fails the message, not the thread
        said = error
    finally:
        meters.ran(message.topic, began)
    return _said(handler, message, said, context, seals)


def _context(handler: Handler, message: Message, scene: Scene) -> Context:
    return Context(message, scene, completed=handler.rules.policy is AckPolicy.ACK_FIRST)


async def _at_once(ended: Ended) -> Ended:
    return ended


def _said(
    handler: Handler, message: Message, said: object, context: Context | None, seals: Seals | None
) -> Ended | None:
    """Return what to settle; nothing if the handler completed its message in its own transaction."""
    said = checked(promised_by(context), said)
    if context is None or not context.completed or handler.rules.policy is AckPolicy.ACK_FIRST:
        return handler.rules.ended(message, said, None if context is None else context.action)
    if isinstance(said, BaseException):
        _tell_after_completion(message, outcome.describe(said) if seals is None else seals.described(message, said))
    elif said is not None:
        _tell_after_completion(message, "it returned an output: set ctx.output in the transaction")
    return None


def _tell_after_completion(message: Message, error: str) -> None:
    log.warning(events.MESSAGE_ENDED_AFTER_COMPLETION, message_id=message.id, topic=message.topic, reason=error)


TOLD = {
    Kind.COMPLETE: events.MESSAGE_OUTPUT_DROPPED,
    Kind.RETRY: events.ATTEMPT_FAILED,
    Kind.EXPIRE: events.ATTEMPT_TIMED_OUT,
    Kind.REJECT: events.MESSAGE_REJECTED,
    Kind.FAIL: events.MESSAGE_FAILED,
}


def _tell_batch(ended: Iterable[Ended]) -> None:
    """The same for a batch: what went wrong with many of its messages at once is logged once, with the first of them."""
    alike = Counter((each.kind, each.error) for each in ended if each.error is not None)
    for each in ended:
        if each.error is not None and (count := alike.pop((each.kind, each.error), 0)):
            _tell(each, **({"messages": count} if count > 1 else {}))


def _tell(ended: Ended, **more: int) -> None:
    """Log an attempt that did not go well: the last line of its error, never its payload."""
    message = ended.message
    reason = (ended.error or "").rstrip().rpartition("\n")[2]
    log.warning(
        TOLD[ended.kind], message_id=message.id, topic=message.topic, attempt=message.attempt, reason=reason, **more
    )
