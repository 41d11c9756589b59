"""The queues of the growth benchmark: a small one and a large one of each kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from bench.postgres import Database

# Each kind has this many messages that can be claimed, unless it sets another number.
READY = 10_000
CHANNELS = 100
TOPIC_MESSAGES = 200_000
DAY = "message_archive_{:%Y%m%d}"

Hold = Callable[[Database], AbstractContextManager[None]]


def _hold_nothing(_: Database) -> AbstractContextManager[None]:
    return nullcontext()


@dataclass(frozen=True)
class State:
    """A queue that is filled and then processed.

    Attributes:
        what: a description of its contents.
        statements: the statements that fill it.
        topics: the topics and patterns that the worker names.
        hold: a context that lasts while it is processed.
        archived: how many messages were archived, with the ids from 1 on.
    """

    what: str
    statements: Sequence[str]
    topics: Sequence[str] = ("noop",)
    hold: Hold = _hold_nothing
    archived: int = 0

    def fill(self, database: Database) -> None:
        """Fill the tables as a restored dump would, without triggers, and leave them as a vacuum would."""
        with database.connect() as conn:
            conn.execute("SET session_replication_role = replica")
            for statement in self.statements:
                conn.execute(statement.encode())
            conn.execute("VACUUM ANALYZE messages.message, messages.message_archive, messages.rate")


def ready(messages: int, what: str = "", hold: Hold = _hold_nothing) -> State:
    """Return a topic with this many ready messages."""
    filled = [
        f"INSERT INTO messages.message (topic, payload) SELECT 'noop', '{{\"n\": 1}}' "
        f"FROM generate_series(1, {messages})"
    ]
    return State(what or f"{messages:,} ready", filled, hold=hold)


def topics(number: int, named: int | None) -> State:
    """Return this many topics with messages, and a worker for some of them; None: for the pattern of all."""
    worker = "a worker of topic.*" if named is None else f"a worker of {named:,}"
    filled = [
        "INSERT INTO messages.message (topic, payload)"
        f" SELECT 'topic.' || n % {number}, '{{\"n\": 1}}' FROM generate_series(1, {TOPIC_MESSAGES}) AS n"
    ]
    handled = ["topic.*"] if named is None else [f"topic.{n}" for n in range(named)]
    return State(f"{number:,} topics, {worker}", filled, handled)


def delayed(channels: int) -> State:
    """Return a topic with this many channels whose messages are due tomorrow, and some channels with ready ones."""
    filled = [
        "INSERT INTO messages.message (topic, channel, payload, available_at)"
        f" SELECT 'noop', md5('d' || n), '{{\"n\": 1}}', clock_timestamp() + '1 day' "
        f"FROM generate_series(1, {channels}) AS n",
        _ready_in_channels(),
    ]
    return State(f"{channels:,} delayed channels", filled)


def ordered(channels: int) -> State:
    """Return an ordered topic with this many channels whose first message blocks another.

    The first message is retried tomorrow. Some more channels have ready messages.
    """
    filled = [
        "INSERT INTO messages.topic (topic, ordered) VALUES ('noop', true)",
        "INSERT INTO messages.message (topic, channel, payload)"
        f" SELECT 'noop', md5('h' || n % {channels}), '{{\"n\": 1}}' FROM generate_series(1, 2 * {channels}) AS n",
        "INSERT INTO messages.rate (kind, topic, channel, blocked_until, blocked_by)"
        " SELECT 'channel', m.topic, m.channel, clock_timestamp() + '1 day', min(m.id)"
        " FROM messages.message AS m GROUP BY m.topic, m.channel",
        _ready_in_channels(),
    ]
    return State(f"{channels:,} channels held by order", filled)


def archived(messages: int) -> State:
    """Return this many messages archived today, and some ready ones.

    The day's partition also takes tomorrow's messages, so that midnight changes nothing. It is filled before it is
    attached, which creates its indexes all at once.
    """
    today = datetime.now(UTC).date()
    until = today + timedelta(days=2)
    filled = [
        "CREATE TABLE messages.filled (LIKE messages.message_archive INCLUDING DEFAULTS INCLUDING CONSTRAINTS)",
        "INSERT INTO messages.filled (id, topic, priority, payload, created_at, available_at, attempts, runs, "
        "claim_id, locked_at, result, handled_by)"
        " SELECT n, 'noop', 5, '{\"n\": 1}', now(), now(), 1, 1, 1 + floor(random() * 4503599627370496)::bigint, "
        "now(), 'success', 'bench'"
        f" FROM generate_series(1, {messages}) AS n",
        f"DROP TABLE messages.{DAY.format(today)}, messages.{DAY.format(today + timedelta(days=1))}",
        "ALTER TABLE messages.filled OWNER TO messages_owner",
        f"ALTER TABLE messages.filled RENAME TO {DAY.format(today)}",
        f"ALTER TABLE messages.message_archive ATTACH PARTITION messages.{DAY.format(today)}"
        f" FOR VALUES FROM ('{today} 00:00+00') TO ('{until} 00:00+00')",
        f"ALTER TABLE messages.message ALTER id RESTART WITH {messages + 1}",
    ]
    return State(f"{messages:,} archived today", [*filled, *ready(READY).statements], archived=messages)


def _ready_in_channels() -> str:
    """Return a statement that publishes to channels whose names lie between the names of the others."""
    return (
        "INSERT INTO messages.message (topic, channel, payload)"
        f" SELECT 'noop', md5('r' || n % {CHANNELS}), '{{\"n\": 1}}' FROM generate_series(1, {READY}) AS n"
    )
