"""What operators do, from coroutines: the methods of `Client`, each to be awaited.

    async with AsyncClient("postgresql://…") as queue:
        await queue.pause("mail.send", reason="the relay is down")

There is one implementation, the blocking one, which runs here in a thread:
docs/decisions/0018-one-client-and-a-thread.md.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, TypeVar

import psycopg

from pgrouse.client.client import Client, own_errors
from pgrouse.client.waiting.message_result import MessageResult, Wait
from pgrouse.client.waiting.waiter import Waiter
from pgrouse.config.duration import AnyDuration
from pgrouse.database import schema_name
from pgrouse.process.owner import OwnerProcess

P = ParamSpec("P")
T = TypeVar("T")
# How long a cancelled call waits for the server to learn of it.
CANCEL_S = 5.0


def _in_thread(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Return a method of `Client` to be awaited: with its arguments and its result."""

    @wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **named: P.kwargs) -> T:
        return await self._call(partial(method, self._client, *args, **named))

    return call


class AsyncClient:
    """The queue of one database, for those who operate it, as `Client`.

    Calls are made one at a time, in the order in which they were begun. One that is cancelled is cancelled on the
    server too.

    Args:
        dsn: a connection string, for a connection of its own in autocommit mode. It is made when the block is entered.
        schema: as of `Client`.
    """

    def __init__(self, dsn: str, *, schema: str | None = None) -> None:
        self._dsn = dsn
        self._schema = schema or schema_name.current().name
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="pgrouse client")
        self._client: Client
        self._owner: OwnerProcess | None = None
        # Opened by the first wait.
        self._waiter: Waiter | None = None
        self._opening = asyncio.Lock()
        # Held while a cancellation is sent, so that no call begins which it could meet.
        self._turn = threading.Lock()

    async def __aenter__(self) -> AsyncClient:
        self._owner = OwnerProcess("AsyncClient")
        self._client = await asyncio.get_running_loop().run_in_executor(
            self._thread, partial(Client, self._dsn, schema=self._schema)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._owner is None or not self._owner.is_here:
            return
        if self._waiter is not None:
            await asyncio.to_thread(self._waiter.close)
        await asyncio.get_running_loop().run_in_executor(self._thread, self._in_turn, self._client.close)
        self._thread.shutdown(wait=False)

    publish = _in_thread(Client.publish)
    publish_many = _in_thread(Client.publish_many)
    message = _in_thread(Client.message)
    logs = _in_thread(Client.logs)
    edit = _in_thread(Client.edit)
    signal = _in_thread(Client.signal)
    signal_key = _in_thread(Client.signal_key)
    signal_url = _in_thread(Client.signal_url)
    explain = _in_thread(Client.explain)
    find_messages = _in_thread(Client.find_messages)
    workflow = _in_thread(Client.workflow)
    cancel = _in_thread(Client.cancel)
    delete = _in_thread(Client.delete)
    skip = _in_thread(Client.skip)
    retry_now = _in_thread(Client.retry_now)
    unblock = _in_thread(Client.unblock)
    find_dead = _in_thread(Client.find_dead)
    dead_groups = _in_thread(Client.dead_groups)
    lineage = _in_thread(Client.lineage)
    preview_redrive = _in_thread(Client.preview_redrive)
    redrive = _in_thread(Client.redrive)
    redrive_edited = _in_thread(Client.redrive_edited)
    redrive_where = _in_thread(Client.redrive_where)
    requeue_dead_letters = _in_thread(Client.requeue_dead_letters)
    replay = _in_thread(Client.replay)
    purge_archive = _in_thread(Client.purge_archive)
    create_batch = _in_thread(Client.create_batch)
    batch = _in_thread(Client.batch)
    batches = _in_thread(Client.batches)
    close_batch = _in_thread(Client.close_batch)
    cancel_batch = _in_thread(Client.cancel_batch)
    redrive_batch = _in_thread(Client.redrive_batch)
    workflows = _in_thread(Client.workflows)
    workflow_graph = _in_thread(Client.workflow_graph)
    cancel_workflow = _in_thread(Client.cancel_workflow)
    redrive_workflow = _in_thread(Client.redrive_workflow)
    policy = _in_thread(Client.policy)
    set_policy = _in_thread(Client.set_policy)
    remove_policy = _in_thread(Client.remove_policy)
    topic_state = _in_thread(Client.topic_state)
    subscriptions = _in_thread(Client.subscriptions)
    add_subscription = _in_thread(Client.add_subscription)
    remove_subscription = _in_thread(Client.remove_subscription)
    thresholds = _in_thread(Client.thresholds)
    set_thresholds = _in_thread(Client.set_thresholds)
    pause = _in_thread(Client.pause)
    resume = _in_thread(Client.resume)
    purge_topic = _in_thread(Client.purge_topic)
    stats = _in_thread(Client.stats)
    latency = _in_thread(Client.latency)
    throughput = _in_thread(Client.throughput)
    conditions = _in_thread(Client.conditions)
    incidents = _in_thread(Client.incidents)
    silence = _in_thread(Client.silence)
    unsilence = _in_thread(Client.unsilence)
    drain_worker = _in_thread(Client.drain_worker)
    scale_worker = _in_thread(Client.scale_worker)
    tick = _in_thread(Client.tick)
    schedules = _in_thread(Client.schedules)
    schedule_runs = _in_thread(Client.schedule_runs)
    add_schedule = _in_thread(Client.add_schedule)
    change_schedule = _in_thread(Client.change_schedule)
    remove_schedule = _in_thread(Client.remove_schedule)
    pause_schedule = _in_thread(Client.pause_schedule)
    resume_schedule = _in_thread(Client.resume_schedule)
    run_schedule = _in_thread(Client.run_schedule)
    next_ticks = _in_thread(Client.next_ticks)

    async def wait_for(self, id: int, timeout: AnyDuration | None = None) -> MessageResult:  # noqa: A002, ASYNC109
        """Wait until a message has ended, and return how.

        One connection serves any number of waits, so that other calls go on.
        """
        self._check_process()
        with own_errors():
            return await (await self._opened_waiter(Wait(id, timeout))).ended(id, timeout)

    async def _opened_waiter(self, wait: Wait) -> Waiter:
        """Return the Waiter, which the first wait opens.

        Raises:
            TimeoutError: it could not connect in the time of this wait.
        """
        bound = asyncio.timeout(wait.bound_s())
        try:
            async with bound, self._opening:
                if self._waiter is None:
                    self._waiter = await Waiter(self._dsn, schema=self._schema).__aenter__()
                return self._waiter
        except TimeoutError:
            if bound.expired():
                raise wait.expired() from None
            raise

    def _check_process(self) -> None:
        if self._owner is not None:
            self._owner.check()

    async def _call(self, method: Callable[[], T]) -> T:
        self._check_process()
        going = self._thread.submit(self._in_turn, method)
        done = asyncio.wrap_future(going)
        try:
            return await asyncio.shield(done)
        except asyncio.CancelledError:
            done.add_done_callback(_ignore_result)
            # One that still waits for its turn is just left out.
            if not going.cancel() and not going.done():
                await asyncio.to_thread(self._cancel, going)
            raise

    def _in_turn(self, method: Callable[[], T]) -> T:
        with self._turn:
            pass
        return method()

    def _cancel(self, going: Future[Any]) -> None:
        """Cancel on the server what it does for this call, unless the call has ended.

        In that case the server works for another call.
        """
        with self._turn, suppress(psycopg.Error):
            if not going.done():
                self._client.conn.cancel_safe(timeout=CANCEL_S)


def _ignore_result(done: asyncio.Future[Any]) -> None:
    """Ignore the result of a cancelled call."""
    if not done.cancelled():
        done.exception()
