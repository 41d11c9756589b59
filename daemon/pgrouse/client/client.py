"""What operators do, from Python: the SQL functions, called on one connection.

    with Client("postgresql://…") as queue:
        queue.pause("mail.send", reason="the relay is down")

Blocking; for coroutines there is `AsyncClient`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import datetime
from functools import wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, Unpack

import psycopg
import pydantic

from pgrouse.client.apply import policy_change
from pgrouse.client.call import Call, interval, run
from pgrouse.client.calls import batch as batch_calls
from pgrouse.client.calls import dead, event, maintenance, operate
from pgrouse.client.calls import schedule as schedule_calls
from pgrouse.client.calls import workflow as workflow_calls
from pgrouse.client.calls.monitoring import alert, search
from pgrouse.client.calls.monitoring import explain as explain_calls
from pgrouse.client.calls.monitoring import stats as stats_calls
from pgrouse.client.calls.monitoring.state import Workflow, topic_state
from pgrouse.client.calls.processing import worker
from pgrouse.client.queries import schedule
from pgrouse.client.queries.alert import AlertThresholds, ThresholdChanges, find_thresholds, set_thresholds
from pgrouse.client.queries.batch import BatchWord, find_batches
from pgrouse.client.queries.message import AttemptLog, MessageRecord, find_logs, find_message
from pgrouse.client.queries.schedule import PastRun, Schedule, ScheduleChanges
from pgrouse.client.queries.topic import (
    Subscription,
    add_subscription,
    effective_policy,
    find_policies,
    find_subscriptions,
    remove_policy,
    remove_subscription,
)
from pgrouse.client.signal_url import signal_url
from pgrouse.client.waiting.message_result import MessageResult
from pgrouse.client.waiting.wait_for import wait_for
from pgrouse.client.waiting.waiter import refuse_on_event_loop
from pgrouse.client.workflow_graph import WorkflowGraph, WorkflowWord, read_workflow, read_workflows
from pgrouse.config import validation_text
from pgrouse.config.duration import AnyDuration
from pgrouse.config.policy.policy_options import BackoffKind, BackoffOptions, PolicyOptions
from pgrouse.config.policy.policy_settings import TopicPolicy
from pgrouse.config.policy.topic_policy import DEFAULTS, DesiredPolicy
from pgrouse.database import search_path, session_settings
from pgrouse.database.connection_schema import rendering
from pgrouse.database.database_errors import explain_database_error
from pgrouse.database.schema_name import schema_name, use_schema
from pgrouse.errors import BatchNotFound, DatabaseUnreachable, InvalidSetting, MessageNotFound, RequestRefused
from pgrouse.process.owner import OwnerProcess
from pgrouse.publishing.new_message import NewMessage, PublishOptions, own_policy_columns
from pgrouse.publishing.publish import publish, publish_many
from pgrouse.publishing.published import Published, PublishedMany
from pgrouse.values.jsonb import encode

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher


@contextmanager
def own_errors() -> Iterator[None]:
    """Raise errors of psycopg and pydantic in this block as errors of pgrouse."""
    try:
        yield
    except psycopg.Error as error:
        text, _ = explain_database_error(error)
        if error.sqlstate is None and isinstance(error, psycopg.OperationalError):
            raise DatabaseUnreachable(text) from error
        raise RequestRefused(text, error.sqlstate) from error
    except pydantic.ValidationError as error:
        raise InvalidSetting("; ".join(map(_describe, error.errors(include_url=False)))) from error


def _describe(problem: object) -> str:
    assert isinstance(problem, dict)  # noqa: S101 - as pydantic has them
    name = ".".join(map(str, problem["loc"]))
    return f"{name}: {validation_text.describe(problem, TopicPolicy.names(), 'setting')}"


P = ParamSpec("P")
T = TypeVar("T")


def _method(binding: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """Return the method that makes the calls of a binding: with its arguments and its result."""

    @wraps(binding)
    def method(self: Client, /, *args: P.args, **named: P.kwargs) -> T:
        return self._run(binding(*args, **named))

    return method


class Client:
    """The queue of one database, for those who operate it (the role messages_operator).

    As a context manager it closes the connection that it made. Every error is a PgrouseError, but for arguments of
    wrong types.

    Args:
        where: a connection string, for a connection of its own in autocommit mode; or a connection of the caller, who
            then begins and commits the transactions.
        schema: that of the queue. None = that of `use_schema` or of the environment, else `messages`.
    """

    def __init__(self, where: str | psycopg.Connection[Any], *, schema: str | None = None) -> None:
        self._is_own = isinstance(where, str)
        self._owner = OwnerProcess("Client")
        self._refuse_on_event_loop()
        self._schema = None if schema is None else schema_name(schema)
        with self._meaning():
            self.conn: psycopg.Connection[Any] = (
                session_settings.set_up(psycopg.connect(where, autocommit=True)) if isinstance(where, str) else where
            )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, unless it is the caller's, or that of the process of which this is a fork."""
        if self._is_own and self._owner.is_here:
            self.conn.close()

    # Messages

    def publish(
        self, topic: str, payload: Any = None, *, cipher: Cipher | None = None, **options: Unpack[PublishOptions]
    ) -> Published:
        """Publish one message: `pgrouse.publish` on the connection of this client."""
        with self._meaning():
            return publish(self._usable_conn(), topic, payload, cipher=cipher, **options)

    def publish_many(self, messages: Iterable[NewMessage], *, cipher: Cipher | None = None) -> PublishedMany:
        """Publish any number of messages: `pgrouse.publish_many` on the connection of this client."""
        with self._meaning():
            return publish_many(self._usable_conn(), messages, cipher=cipher)

    def message(self, id: int) -> MessageRecord:  # noqa: A002 - as in SQL
        """Return all that is known of a message, live or archived.

        Raises:
            MessageNotFound: there is none, or no more.
        """
        found = self._run(find_message(id))
        if found is None:
            raise MessageNotFound(f"there is no message {id}: it was never published, or was deleted from the archive")
        return found

    def logs(self, id: int) -> list[AttemptLog]:  # noqa: A002 - as in SQL
        """Return the log lines of the attempts of a message, the first attempt first, if its topic keeps them."""
        return self._run(find_logs(id))

    def wait_for(self, id: int, timeout: AnyDuration | None = None) -> MessageResult:  # noqa: A002 - as in SQL
        """Wait until a message has ended, and return how: `pgrouse.wait_for` on the connection of this client."""
        refuse_on_event_loop("Client.wait_for", "await AsyncClient.wait_for()")
        with self._meaning():
            return wait_for(self._usable_conn(), id, timeout)

    def edit(
        self,
        id: int,  # noqa: A002 - as in SQL
        *,
        payload: Any = None,
        headers: Mapping[str, Any] | None = None,
        seen: str | None = None,
    ) -> str:
        """Replace the payload or the headers of a waiting message; return edited, changed, running or ended.

        Args:
            id: which message.
            payload: the new one; None leaves the old.
            headers: the new ones; None leaves the old.
            seen: the md5 of the payload as text; if it is another by now, nothing is replaced.
        """
        return self._run(operate.edit(id, _json(payload, "payload"), _json(headers, "headers"), seen))

    def signal(
        self,
        id: int,  # noqa: A002 - as in SQL
        name: str,
        payload: Any = None,
        *,
        number: int | None = None,
    ) -> bool:
        """Signal an event to a message that waits for it, or will; return whether the message had not ended.

        Args:
            id: which message.
            name: the event.
            payload: what its handler gets: any value with a JSON form.
            number: signal only if fewer than this many signals of this name have come: 1 = only the first counts.
        """
        return self._run(event.signal(id, name, _json(payload, "payload"), number)) is not None

    def signal_key(
        self, topic: str, key: str, name: str, payload: Any = None, *, number: int | None = None
    ) -> int | None:
        """Signal an event to the message of a topic with this key, as `signal` does; return its id, None without one.

        If several messages have the key, it is the one that waits for this event, otherwise the oldest.
        """
        return self._run(event.signal_key(topic, key, name, _json(payload, "payload"), number))

    def signal_url(
        self,
        address: str,
        id: int,  # noqa: A002 - as in SQL
        name: str,
        *,
        until: datetime,
        number: int = 1,
    ) -> str:
        """Return a URL that signals one event to one message, once, for anyone who has it.

        Args:
            address: where the web server is, as in `web.url`.
            id: which message.
            name: the event.
            until: how long the URL holds, at most 366 days from now.
            number: which signal of this name it may be.
        """
        return self._run(signal_url(address, id, name, until, number))

    explain = _method(explain_calls.explain)
    find_messages = _method(search.find_messages)
    workflow = _method(workflow_calls.workflow)
    cancel = _method(operate.cancel)
    delete = _method(operate.delete)
    skip = _method(operate.skip)
    retry_now = _method(operate.retry_now)
    unblock = _method(workflow_calls.unblock)

    # Dead messages

    def redrive_edited(
        self,
        id: int,  # noqa: A002 - as in SQL
        *,
        payload: Any = None,
        headers: Mapping[str, Any] | None = None,
        topic: str | None = None,
        merge: bool = True,
        force: bool = False,
    ) -> dead.Redriven:
        """Put one dead message back with another payload, other headers or another topic; return what became of it.

        Args:
            id: which message.
            payload: the new one; None leaves the old.
            headers: the new ones; None leaves the old.
            topic: where to; None = where it died.
            merge: whether payload and headers are merged into the old ones; a key with None is taken away.
            force: also if it was redriven as often as max_redrives allows.
        """
        call = dead.redrive_edited(id, _json(payload, "payload"), _json(headers, "headers"), topic, merge, force)
        (redriven,) = self._run(call)
        return redriven

    find_dead = _method(dead.find_dead)
    dead_groups = _method(dead.dead_groups)
    lineage = _method(dead.lineage)
    preview_redrive = _method(dead.preview_redrive)
    redrive = _method(dead.redrive)
    redrive_where = _method(dead.redrive_where)
    requeue_dead_letters = _method(dead.requeue_dead_letters)
    replay = _method(dead.replay)
    purge_archive = _method(maintenance.purge_archive)

    # Batches

    def create_batch(
        self,
        name: str | None = None,
        *,
        on_finish: str | None = None,
        on_failure: str | None = None,
        on_success: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> int:
        """Create a batch, whose messages are counted together; return its id, for `batch` of a publish.

        Args:
            name: for people.
            on_finish: the topic that gets a message when the batch is closed and all its messages have ended.
            on_failure: the topic that gets a message when the first of its messages dies.
            on_success: the topic that gets a message when all its messages have succeeded.
            metadata: an object that these messages and the batch show.
        """
        return self._run(batch_calls.create_batch(name, on_finish, on_failure, on_success, _json(metadata, "metadata")))

    def batch(self, id: int) -> batch_calls.BatchProgress:  # noqa: A002 - as in SQL
        """Return the state and the counts of a batch.

        Raises:
            BatchNotFound: there is none, its retention is over, or another role created it.
        """
        found = self._run(batch_calls.batch_progress(id))
        if found is None:
            raise BatchNotFound(f"there is no batch {id}: it was never created, or its retention is over")
        return found

    def batches(self, state: BatchWord | None = None, limit: int = 100) -> list[batch_calls.BatchState]:
        """Return batches, the newest first."""
        return self._run(find_batches(state, most=limit))

    close_batch = _method(batch_calls.close_batch)
    cancel_batch = _method(batch_calls.cancel_batch)
    redrive_batch = _method(batch_calls.redrive_batch)

    # Workflows

    def workflows(
        self, state: WorkflowWord | None = None, before: int | None = None, limit: int = 50
    ) -> list[Workflow]:
        """Return workflows, the latest first.

        Args:
            state: only those in this state, of the 1,000 latest.
            before: only lower ids: the last one of the previous page.
            limit: the maximum number.
        """
        with self._path():
            return read_workflows(self.conn, state, before, limit)[0]

    def workflow_graph(self, id: int) -> WorkflowGraph:  # noqa: A002 - as in SQL
        """Return a workflow and its messages, at most about 10,000.

        Args:
            id: any of its messages.

        Raises:
            MessageNotFound: the message is in no workflow.
        """
        with self._path():
            found = read_workflow(self.conn, id)
        if found is None:
            raise MessageNotFound(f"message {id} is in no workflow: it comes after none, and none comes after it")
        return found

    def cancel_workflow(self, id: int, reason: str | None = None) -> list[int]:  # noqa: A002 - as in SQL
        """Cancel the messages of a workflow that have not ended, all at once; return their ids.

        Args:
            id: any of its messages.
            reason: stored as the error of the messages.

        Raises:
            MessageNotFound: the message is in no workflow.
        """
        return self._run(operate.cancel(self.workflow_graph(id).live_ids(), reason))

    def redrive_workflow(
        self,
        id: int,  # noqa: A002 - as in SQL
        rate: float | None = None,
        delay: AnyDuration | None = None,
        force: bool | None = None,
    ) -> list[dead.Redriven]:
        """Put the dead messages of a workflow back; return what became of each.

        Args:
            id: any of its messages.
            rate: how many become available per second; None = all at once.
            delay: when the first one becomes available.
            force: also those that were redriven as often as max_redrives allows.

        Raises:
            MessageNotFound: the message is in no workflow.
        """
        return self._run(dead.redrive(self.workflow_graph(id).dead_ids(), rate, delay, force))

    # Topics

    def policy(self, topic: str = DEFAULTS) -> dict[str, Any]:
        """Return what holds for a topic, setting by setting: its own values, else the defaults. None = no limit."""
        policies = self._run(find_policies([topic]))
        return effective_policy(policies, topic)

    def set_policy(self, /, topic: str, **settings: Unpack[PolicyOptions]) -> list[str]:
        """Set settings of a topic's policy; return what changed, one line each. It holds at once.

        Args:
            topic: which; '*' for the defaults.
            **settings: as `[topics."NAME"]` of the configuration takes them; "inherit" and "none" too.

        Raises:
            InvalidSetting: a setting that there is not, or a value that it cannot have.
        """
        with self._path():
            wanted = {topic: DesiredPolicy(TopicPolicy.model_validate(settings))}
            with rendering(self.conn):
                return [str(change) for change in policy_change.apply(self.conn, wanted)]

    def subscriptions(self, topic: str | None = None) -> list[Subscription]:
        """Return who gets copies of which topic: of all, or on either side of one."""
        return self._run(find_subscriptions(topic))

    def thresholds(self, topic: str | None = None) -> list[AlertThresholds]:
        """Return from when on something is wrong, by topic; the defaults, of '*', are the first."""
        return self._run(find_thresholds(topic))

    def set_thresholds(self, topic: str = DEFAULTS, **thresholds: Unpack[ThresholdChanges]) -> None:
        """Set from when on something about a topic is wrong, or by default.

        None takes the default, 0 switches a threshold off.

        Raises:
            ValueError: nothing is given, or what is no threshold.
        """
        self._run(set_thresholds(topic, thresholds))

    remove_policy = _method(remove_policy)
    topic_state = _method(topic_state)
    add_subscription = _method(add_subscription)
    remove_subscription = _method(remove_subscription)
    pause = _method(operate.pause)
    resume = _method(operate.resume)
    purge_topic = _method(operate.purge_topic)

    # The queue

    stats = _method(stats_calls.stats)
    latency = _method(stats_calls.latency)
    throughput = _method(stats_calls.throughput)
    conditions = _method(alert.conditions)
    incidents = _method(alert.incidents)
    silence = _method(alert.silence)
    unsilence = _method(alert.unsilence)
    drain_worker = _method(worker.drain_worker)
    scale_worker = _method(worker.scale_worker)
    tick = _method(maintenance.tick)

    # Schedules

    def add_schedule(
        self,
        name: str,
        cron: str,
        topic: str,
        payload: Any = None,
        *,
        time_zone: str | None = None,
        channel: str | None = None,
        key: str | None = None,
        priority: int | None = None,
        max_attempts: int | None = None,
        timeout: AnyDuration | None = None,
        backoff: BackoffOptions | BackoffKind | None = None,
        retention: AnyDuration | None = None,
        headers: Mapping[str, Any] | None = None,
        jitter: AnyDuration | None = None,
        missed: Literal["skip", "once", "all"] | None = None,
        missed_limit: int | None = None,
        while_paused: Literal["publish", "skip"] | None = None,
        replace: bool = False,
    ) -> None:
        """Publish a message on a schedule.

        Args:
            name: what to call it.
            cron: when, in the five fields of cron, or six with the second before them.
            topic: the topic of the messages.
            payload: of each; {} unless given.
            time_zone: of cron; UTC unless given.
            channel: of each.
            key: of each: while a message with it waits, a tick publishes none.
            priority: of each; 5 unless given.
            max_attempts: of each, instead of the topic's; 0 is no limit.
            timeout: how long an attempt may run, instead of the topic's.
            backoff: how long to wait before the next attempt, instead of the topic's: a kind, or its parts.
            retention: how long the archive keeps each, instead of the topic's.
            headers: of each.
            jitter: each is delayed by up to this.
            missed: of missed ticks: none, one message for all of them, or one for each; once unless given.
            missed_limit: with all: how many at most; 100 unless given.
            while_paused: of ticks while the topic is paused: publish or skip; publish unless given.
            replace: whether one with this name is replaced.
        """
        given = {
            "name": name,
            "cron": cron,
            "topic": topic,
            "payload": _json(payload, "payload"),
            "time_zone": time_zone,
            "channel": channel,
            "key": key,
            "priority": priority,
            "max_attempts": max_attempts,
            **own_policy_columns({"timeout": timeout, "backoff": backoff, "retention": retention}),
            "headers": _json(headers, "headers"),
            "jitter": interval(jitter, "jitter"),
            "missed": missed,
            "missed_limit": missed_limit,
            "while_paused": while_paused,
        }
        self._run(schedule.add_schedule(given, replace=replace))

    def schedules(self) -> list[Schedule]:
        """Return the schedules, by name."""
        return self._run(schedule.find_schedules())

    def schedule_runs(self, name: str, limit: int = 100) -> list[PastRun]:
        """Return the latest runs of a schedule, the latest first, with the ticks that were left out."""
        return self._run(schedule.last_runs(name, limit))

    def change_schedule(self, name: str, **changes: Unpack[ScheduleChanges]) -> bool:
        """Change what is given of a schedule, as of add_schedule; return whether it was there.

        None removes channel, key, headers, max_attempts, timeout, backoff or retention.

        Raises:
            ValueError: nothing is given, or what a schedule does not have, or None for what it must have.
        """
        given: dict[str, Any] = dict(changes)
        columns = _schedule_columns(given)
        if wrong := [each for each in given if given[each] is None and each not in (*schedule.OPTIONAL, "payload")]:
            raise ValueError(f"{wrong[0]} is None: a schedule must have one")
        return self._run(schedule.change_schedule(name, columns))

    def remove_schedule(self, name: str) -> bool:
        """Delete a schedule; return whether it was there. What it has published stays."""
        return self._run(schedule.delete_schedule(name))

    pause_schedule = _method(schedule_calls.pause_schedule)
    resume_schedule = _method(schedule_calls.resume_schedule)
    run_schedule = _method(schedule_calls.run_schedule)
    next_ticks = _method(schedule_calls.next_ticks)

    # How

    def _run(self, call: Call[T]) -> T:
        with self._path():
            return run(self.conn, call)

    @contextmanager
    def _path(self) -> Iterator[None]:
        """Fix what names mean, on the caller's connection only for this block. Raise errors of pgrouse."""
        conn = self._usable_conn()
        with self._meaning(), nullcontext() if self._is_own else search_path.fixed(conn):
            yield

    def _usable_conn(self) -> psycopg.Connection[Any]:
        """Return the connection.

        Raises:
            ForkedProcess: this process is a fork of the one that made the client.
            RuntimeError: it is the client's own, and an event loop runs in this thread, which would stand still.
        """
        self._owner.check()
        self._refuse_on_event_loop()
        return self.conn

    def _refuse_on_event_loop(self) -> None:
        if self._is_own:
            refuse_on_event_loop("Client", "AsyncClient, whose methods are awaited")

    @contextmanager
    def _meaning(self) -> Iterator[None]:
        """Let calls mean the queue of this client. Raise errors of pgrouse."""
        with own_errors(), nullcontext() if self._schema is None else use_schema(self._schema):
            yield


def _json(value: Any, name: str) -> str | None:
    return None if value is None else encode(value, name)


def _schedule_columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given of a schedule as the columns that are sent."""
    unknown = sorted(given.keys() - set(schedule.EDITABLE))
    if unknown or not given:
        raise ValueError(
            f"a schedule has no {', '.join(unknown) or 'change'}: give some of {', '.join(schedule.EDITABLE)}"
        )
    columns = dict(given) | own_policy_columns(given)
    columns |= {"payload": encode(given["payload"], "payload")} if "payload" in given else {}
    columns |= {"headers": _json(given["headers"], "headers")} if "headers" in given else {}
    return columns | ({"jitter": interval(given["jitter"], "jitter")} if "jitter" in given else {})
