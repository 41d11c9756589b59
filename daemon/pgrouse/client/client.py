"""What operators do, from Python: each method is one of the SQL functions, called on one connection.

    with Client("postgresql://…") as queue:
        queue.pause("mail.send", reason="the relay is down")

Blocking; for coroutines there is `AsyncClient`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb
from pydantic_core import from_json

from pgrouse import search_path
from pgrouse.client import message_query, policy_change
from pgrouse.client.wait_for import MessageResult, wait_for
from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.config.policy_settings import TopicPolicy
from pgrouse.config.topic_policy import DEFAULTS, DesiredPolicy
from pgrouse.errors import MessageNotFound
from pgrouse.publishing.new_message import NewMessage, Options
from pgrouse.publishing.publish import publish, publish_many
from pgrouse.publishing.published import Published, PublishedMany

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher

Row = dict[str, Any]


class Filters(TypedDict, total=False):
    """Which dead messages: those that fit all that is given.

    Attributes:
        topic: of this topic.
        result: with this result.
        fingerprint: with this error_fingerprint.
        error: with this text in the error, whatever its case.
        since: that died at this time or later.
        until: that died before this time.
        limit: at most so many, the oldest first; 1,000 unless given.
    """

    topic: str
    result: str
    fingerprint: str
    error: str
    since: datetime
    until: datetime
    limit: int


class Client:
    """The queue of one database, for those who operate it (the role messages_operator).

    As a context manager it closes the connection that it made. Errors of the server are psycopg's; their hint is the fix.

    Args:
        where: a connection string, for a connection of its own in autocommit mode; or a connection of the caller, who then begins
            and commits the transactions.
    """

    def __init__(self, where: str | psycopg.Connection[Any]) -> None:
        self._is_own = isinstance(where, str)
        self.conn: psycopg.Connection[Any] = (
            search_path.fix(psycopg.connect(where, autocommit=True)) if isinstance(where, str) else where
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, unless it is the caller's."""
        if self._is_own:
            self.conn.close()

    # Messages

    def publish(
        self, topic: str, payload: Any = None, *, cipher: Cipher | None = None, **options: Unpack[Options]
    ) -> Published:
        """Publish one message: `pgrouse.publish` on the connection of this client."""
        return publish(self.conn, topic, payload, cipher=cipher, **options)

    def publish_many(self, messages: Iterable[NewMessage], *, cipher: Cipher | None = None) -> PublishedMany:
        """Publish any number of messages: `pgrouse.publish_many` on the connection of this client."""
        return publish_many(self.conn, messages, cipher=cipher)

    def message(self, message_id: int) -> Row:
        """Return all that is known of a message, live or archived; `state` says which: ready, delayed, retrying, running or its result.

        Raises:
            MessageNotFound: there is none, or no more.
        """
        rows = self._run(message_query.query(contents=True), {"id": message_id})
        if not rows:
            raise MessageNotFound(
                f"there is no message {message_id}: it was never published, or was deleted from the archive"
            )
        return {name: _decoded(name, value) for name, value in rows[0].items()}

    def explain(self, message_id: int) -> list[Row]:
        """Return why a message is not running, or how it ended: `code`, `reason` and `detail` of each, the most decisive first."""
        return self._call("explain", id=message_id)

    def cancel(self, *message_ids: int, reason: str | None = None) -> list[int]:
        """End messages, waiting or running; return the ids of those that had not ended before."""
        cancelled: list[int] = self._value("cancel", ids=list(message_ids), reason=reason)
        return cancelled

    def delete(self, *message_ids: int) -> list[int]:
        """Delete waiting messages without a trace; return the ids of those that were deleted."""
        deleted: list[int] = self._value("delete", ids=list(message_ids))
        return deleted

    def purge_topic(self, topic: str, *, limit: int = 1000, upto: int | None = None) -> int:
        """Delete what waits in a topic, a batch; return how many messages that were. Call it until there are none.

        Args:
            topic: which.
            limit: at most so many, 10,000 at most.
            upto: none with a higher id, which was published later.
        """
        deleted: int = self._value("purge_topic", topic=topic, limit=limit, upto=upto)
        return deleted

    def skip(self, *message_ids: int, reason: str | None = None) -> list[int]:
        """End waiting messages as failed, so that those behind them in an ordered channel go on; return the ids of those that were ended."""
        skipped: list[int] = self._value("skip", ids=list(message_ids), reason=reason)
        return skipped

    def retry_now(self, *message_ids: int) -> list[int]:
        """Make messages that wait for a time available at once; return the ids of those that waited."""
        due: list[int] = self._value("retry_now", ids=list(message_ids))
        return due

    def wait_for(self, message_id: int, timeout: AnyDuration | None = None) -> MessageResult:
        """Wait until a message has ended, and return how: `pgrouse.wait_for` on the connection of this client."""
        return wait_for(self.conn, message_id, timeout)

    # Dead messages

    def dead(self, *, redriven: bool = False, after: int | None = None, **filters: Unpack[Filters]) -> list[Row]:
        """Return dead messages, the oldest first.

        Args:
            redriven: those too that were put back since.
            after: the last id of the page before.
            **filters: see Filters.
        """
        return self._call("find_dead", redriven=redriven, after=after, **filters)

    def dead_groups(
        self, *, since: AnyDuration | None = None, topic: str | None = None, result: str | None = None
    ) -> list[Row]:
        """Return the dead messages of a time (7 days unless given) by topic, result and fingerprint: how many, a sample, a trend."""
        return self._call("dead_groups", since=_time("since", since), topic=topic, result=result)

    def redrive(
        self, *message_ids: int, rate: float | None = None, delay: AnyDuration | None = None, force: bool = False
    ) -> list[Row]:
        """Put dead messages back; return for each `archived_id`, `message_id` and `outcome`.

        Args:
            *message_ids: which.
            rate: so many a second become available; all at once unless given.
            delay: how long from now the first one does: a timedelta, seconds, or "5s".
            force: also those that were redriven as often as max_redrives allows.
        """
        return self._call("redrive", ids=list(message_ids), rate=rate, delay=_time("delay", delay), force=force)

    def redrive_where(
        self,
        *,
        rate: float | None = None,
        delay: AnyDuration | None = None,
        force: bool = False,
        after: int | None = None,
        **filters: Unpack[Filters],
    ) -> list[Row]:
        """Put back the dead messages that fit all filters (see Filters), behind `after` as of `dead`; the rest is as of `redrive`."""
        return self._call("redrive_where", rate=rate, delay=_time("delay", delay), force=force, after=after, **filters)

    def requeue(
        self, *copy_ids: int, rate: float | None = None, delay: AnyDuration | None = None, force: bool = False
    ) -> list[Row]:
        """Move copies that wait in a `.dlq` topic back to where they died; the rest is as of `redrive`, with `copy_id`."""
        return self._call(
            "requeue_dead_letters", ids=list(copy_ids), rate=rate, delay=_time("delay", delay), force=force
        )

    def replay(
        self,
        topic: str,
        from_: datetime,
        to: datetime,
        *,
        limit: int | None = None,
        rate: float | None = None,
        after: int | None = None,
    ) -> list[Row]:
        """Publish again what succeeded in a time, the oldest first; return for each `archived_id`, `message_id` and `outcome`.

        Args:
            topic: the topic.
            from_: when it succeeded: from this time on,
            to: and before this one.
            limit: at most so many; 1,000 unless given.
            rate: so many a second become available; all at once unless given.
            after: the last archived_id of the page before.
        """
        return self._call("replay", topic=topic, **{"from": from_}, to=to, limit=limit, rate=rate, after=after)

    # Topics

    def policy(self, topic: str = DEFAULTS) -> Row:
        """Return what holds for a topic, setting by setting: its own values, else the defaults. None = no limit."""
        rows = {
            row["topic"]: row for row in self._run("SELECT * FROM messages.topic WHERE topic IN ('*', %s)", [topic])
        }
        own, defaults = rows.get(topic, {}), rows[DEFAULTS]
        return {
            setting: defaults[setting] if own.get(setting) is None else own[setting] for setting in TopicPolicy.names()
        }

    def set_policy(self, topic: str, **settings: Any) -> list[str]:
        """Set settings of a topic's policy; return what changed, one line each. It holds at once.

        Args:
            topic: which; '*' for the defaults.
            **settings: as `[topics."NAME"]` of the configuration takes them; "inherit" and "none" too.

        Raises:
            pydantic.ValidationError: a setting that there is not, or a value that it cannot have.
        """
        wanted = {topic: DesiredPolicy(TopicPolicy(**settings))}
        with self._path():
            return [str(change) for change in policy_change.apply(self.conn, wanted)]

    def pause(
        self,
        topic: str,
        *,
        reason: str | None = None,
        resume_in: AnyDuration | None = None,
        until: datetime | None = None,
        channel: str | None = None,
    ) -> datetime | None:
        """Stop a topic ('*': all), or one channel of it, until it is resumed or the time has come; return that time."""
        ends_at: datetime | None = self._value(
            "pause", topic=topic, reason=reason, resume_in=_time("resume_in", resume_in), until=until, channel=channel
        )
        return ends_at

    def resume(self, topic: str, *, channel: str | None = None) -> bool:
        """End a pause; return whether there was one."""
        was_paused: bool = self._value("resume", topic=topic, channel=channel)
        return was_paused

    def stats(self) -> list[Row]:
        """Return the counts of the queue, one row per topic. Counts stop at 10,000: then they mean "at least"."""
        return self._call("stats")

    # Schedules

    def schedules(self) -> list[Row]:
        """Return the schedules, by name."""
        return self._run("SELECT * FROM messages.schedule ORDER BY name", [])

    def add_schedule(self, name: str, cron: str, topic: str, payload: Any = None, **options: Any) -> None:
        """Publish a message on a schedule.

        Args:
            name: what to call it.
            cron: when, in the five fields of cron.
            topic: the topic of the messages.
            payload: of each; {} unless given.
            **options: time_zone, channel, key, priority, headers, jitter, missed, missed_limit: columns of messages.schedule.
        """
        columns = {"name": name, "cron": cron, "topic": topic, "payload": {} if payload is None else payload} | options
        values = {
            column: Jsonb(value) if column in ("payload", "headers") else value for column, value in columns.items()
        }
        insert = sql.SQL("INSERT INTO messages.schedule ({}) VALUES ({})").format(
            sql.SQL(", ").join(map(sql.Identifier, values)), sql.SQL(", ").join(map(sql.Placeholder, values))
        )
        self.conn.execute(insert, values)

    def remove_schedule(self, name: str) -> bool:
        """Delete a schedule; return whether it was there. What it has published stays."""
        return self.conn.execute("DELETE FROM messages.schedule WHERE name = %s", [name]).rowcount > 0

    def pause_schedule(self, name: str, *, reason: str | None = None) -> bool:
        """Stop a schedule until it is resumed; return whether it was running."""
        was_running: bool = self._value("pause_schedule", name=name, reason=reason)
        return was_running

    def resume_schedule(self, name: str) -> bool:
        """Let a schedule go on with its next tick; return whether it was paused."""
        was_paused: bool = self._value("resume_schedule", name=name)
        return was_paused

    def run_schedule_now(self, name: str) -> Row:
        """Publish the message of a schedule now; return `what` became of it (published, else as in messages.schedule_run) and its `id`."""
        (row,) = self._call("run_schedule", name=name)
        return row

    # How

    def _call(self, function: str, **arguments: Any) -> list[Row]:
        """Return the rows of an SQL function; what is None is left to its default."""
        given = {name: value for name, value in arguments.items() if value is not None}
        call = sql.SQL("SELECT * FROM {}({})").format(
            sql.Identifier("messages", function),
            sql.SQL(", ").join(
                sql.SQL("{} => {}").format(sql.Identifier(f"p_{name}"), sql.Placeholder(name)) for name in given
            ),
        )
        return self._run(call, given)

    def _value(self, function: str, **arguments: Any) -> Any:
        """Return the only value of an SQL function."""
        (row,) = self._call(function, **arguments)
        (value,) = row.values()
        return value

    def _run(self, statement: str | sql.Composed, values: Sequence[Any] | Mapping[str, Any]) -> list[Row]:
        query = statement.encode() if isinstance(statement, str) else statement
        with self._path():
            # A cursor of our own: the caller's factories would change what comes back.
            return psycopg.Cursor(self.conn, row_factory=dict_row).execute(query, values).fetchall()

    def _path(self) -> AbstractContextManager[None]:
        """Fix what names mean; on the caller's connection only meanwhile."""
        return nullcontext() if self._is_own else search_path.fixed(self.conn)


def _time(name: str, value: AnyDuration | None) -> timedelta | None:
    return None if value is None else duration.to_timedelta(value, name)


def _decoded(name: str, value: Any) -> Any:
    return from_json(value) if name in message_query.JSON_COLUMNS and value is not None else value
