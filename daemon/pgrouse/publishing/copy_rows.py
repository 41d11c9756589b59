"""Many messages on their way to the table.

They are checked one by one, never all in memory, as the text of a COPY, as INSERTs, or as calls of messages.publish.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any, cast

from pgrouse.database.schema_name import SchemaName
from pgrouse.errors import InvalidMessage, InvalidPayload
from pgrouse.publishing import schema_cache
from pgrouse.publishing.new_message import FIRST, OWN_POLICY, NewMessage, check_append, to_columns
from pgrouse.publishing.publish_statement import interval_text, is_a_row
from pgrouse.publishing.published import Published, PublishOutcome
from pgrouse.publishing.schema_cache import SchemaSnapshot
from pgrouse.publishing.statement import Statement
from pgrouse.telemetry.trace_context import NO_TRACE, NoTrace

if TYPE_CHECKING:
    from pgrouse.crypto.cipher import Cipher
    from pgrouse.telemetry.publish_span import PublishSpan

DEFAULT_PRIORITY = 5  # of the column; COPY cannot leave out one row's value
# The server stores a block while the next one is encoded. A block ends with this many rows, or at this many characters:
# by the characters alone, a thousand small messages would be a single block.
BLOCK_ROWS, BLOCK_CHARS = 100, 16 * 1024
# Each COPY fires the triggers once. If there are several, each has at most this many characters, or KEYS rows.
COPY_CHARS = 1024 * 1024
# One INSERT holds at most this many rows, or the rows that reach this many characters.
INSERT_ROWS, INSERT_CHARS = 500, 1024 * 1024
# An error of the server names the line of a key that is taken. This many keys are remembered to find it, unless the
# messages are a list.
KEYS = 10_000

# Nothing else is known of most messages. Their rows have no fields that say so.
PLAIN = ("topic", "payload")
UNTIMED = (*PLAIN, "channel", "key", "priority", "body", "headers", "max_attempts", "batch_id")
ALL = (*UNTIMED, "available_at", "expires_at", *OWN_POLICY)
# A message that has one of these needs all columns.
RARE = frozenset({"available_at", "ttl", "on_conflict", *OWN_POLICY})
# The types to which the texts of an INSERT are cast; a priority and max_attempts are numbers already.
CASTS = {
    "payload": "r.payload::pg_catalog.jsonb",
    "body": "pg_catalog.decode(r.body, 'hex')",
    "headers": "r.headers::pg_catalog.jsonb",
    "available_at": "r.available_at::pg_catalog.timestamptz",
    "expires_at": "r.expires_at::pg_catalog.timestamptz",
    "timeout": "r.timeout::interval",
    "backoff": "r.backoff::pg_catalog.jsonb",
    "retention": "r.retention::interval",
}
# The clock is read after the transaction has its number: a row must not seem older than its transaction, or claims look
# for it too late.
READ_START = Statement(
    "SELECT "  # noqa: S608 - constants only
    "(pg_catalog.extract('epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*) 1000000)::bigint, "
    f"({schema_cache.READ_ALL}) FROM pg_catalog.pg_current_xact_id()",
    {},
)
# As text, which every driver returns unchanged. One session draws ids in ascending order. The topics are needed only if
# a full topic dropped some messages.
IDS = (
    "pg_catalog.string_agg(id::pg_catalog.text, ',' ORDER BY id), "
    "CASE WHEN pg_catalog.count(*) OPERATOR(pg_catalog.<>) %(expected)s::bigint "
    "THEN pg_catalog.string_agg(topic::pg_catalog.text, ',' ORDER BY id) END"
)


# The arguments of messages.publish, with the types to which their texts are cast and their defaults. Each key is locked
# until the transaction ends: in one order, so that two callers wait for each other and do not deadlock.
ARGUMENTS = {
    "topic": "r.topic",
    "key": "r.key",
    "on_conflict": "r.on_conflict",
    "channel": "r.channel",
    "priority": f"coalesce(r.priority, {DEFAULT_PRIORITY})",
    "payload": "r.payload::pg_catalog.jsonb",
    "body": "pg_catalog.decode(r.body, 'hex')",
    "headers": "r.headers::pg_catalog.jsonb",
    "max_attempts": "r.max_attempts",
    "timeout": "r.timeout::interval",
    "backoff": "r.backoff::pg_catalog.jsonb",
    "retention": "r.retention::interval",
    "batch_id": "r.batch_id",
    "delay": "r.delay::interval",
    "available_at": "r.available_at::pg_catalog.timestamptz",
    "ttl": "r.ttl::interval",
    "after": "r.after::bigint[]",
    "after_failed": "coalesce(r.after_failed, 'hold')",
    "expect_result": "coalesce(r.expect_result::boolean, false)",
    "debounce": "r.debounce::interval",
    "max_delay": "r.max_delay::interval",
    "throttle": "r.throttle::interval",
}
INTEGERS = {"priority": "int", "max_attempts": "int", "batch_id": "bigint"}


def _record_type(names: Iterable[str]) -> str:
    return ", ".join(f"{name} {INTEGERS.get(name, 'pg_catalog.text')}" for name in names)


CALLS = (
    "SELECT pg_catalog.string_agg("  # noqa: S608 - constants only
    "pg_catalog.concat(coalesce(p.id, 0), ' ', p.outcome), ',' ORDER BY r.ordinality) "
    "FROM (SELECT * FROM ROWS FROM (pg_catalog.json_to_recordset(%(rows)s::pg_catalog.text::pg_catalog.json) "
    f"AS ({_record_type(ARGUMENTS)})) WITH ORDINALITY AS r "
    'ORDER BY r.topic COLLATE pg_catalog."C", r.key COLLATE pg_catalog."C", r.ordinality) AS r '
    "CROSS JOIN LATERAL messages.publish("
    f"{', '.join(f'p_{name} => {value}' for name, value in ARGUMENTS.items())}) AS p"
)


def read_outcomes(results: str) -> Iterator[Published]:
    """Yield the result of each message of one statement of `CallPart`."""
    for each in results.split(","):
        number, _, outcome = each.partition(" ")
        yield Published(int(number), cast("PublishOutcome", outcome))


def read_ids(topics: list[str], ids: str | None, stored: str | None) -> Iterator[Published]:
    """Yield the result of each row of one INSERT. If a full topic dropped rows, they are the last ones of that topic.

    Args:
        topics: the topics of the rows.
        ids: of the rows that were stored, in their order.
        stored: their topics; None if all were stored.
    """
    numbers = map(int, ids.split(",")) if ids else iter(())
    left = Counter(topics if ids and stored is None else (stored or "").split(","))
    for topic in topics:
        left[topic] -= 1
        yield Published(next(numbers)) if left[topic] >= 0 else Published(None, "dropped")


@dataclass(frozen=True, slots=True)
class CopyPart:
    """CopyRows with the same columns, in their order.

    Attributes:
        columns: of messages.message.
        rows: rows as `new_message.row` returns them; they can be taken once.
        begin: call it before the first row of each COPY is taken: the server counts lines from there.
        needs_connection: whether taking a row may need the connection, which is busy during a COPY.
    """

    columns: tuple[str, ...]
    rows: Iterator[dict[str, Any]]
    begin: Callable[[], None]
    needs_connection: bool

    def copy(self, schema: SchemaName) -> bytes:
        """Return the COPY statement for the text of `blocks`, or of each of `copies`."""
        statement = f"COPY messages.message ({', '.join(self.columns)}) FROM STDIN (ENCODING 'UTF8')"
        return schema.render(statement).encode()

    def blocks(self) -> Iterator[bytes]:
        """Yield the text for one COPY. Lines are gathered, because one write for each line would be slow."""
        self.begin()
        while block := self._next_text(BLOCK_ROWS, BLOCK_CHARS):
            yield block

    def copies(self) -> Iterator[Iterable[bytes]]:
        """Yield the texts of COPYs, each in blocks.

        While a COPY is under way, no row is taken that may be read from the same connection.
        """
        if not self.needs_connection:
            yield self.blocks()
            return
        self.begin()
        while text := self._next_text(KEYS, COPY_CHARS):
            yield (text,)
            self.begin()

    def inserts(self) -> Iterator[Statement]:
        """Yield statements that publish the same where there is no COPY; each returns its number of rows."""
        sql = self._insert("1", "pg_catalog.count(*)")
        return (Statement(sql, {"rows": f"[{','.join(records)}]"}) for _, records in self._gathered())

    def inserts_with_ids(self) -> Iterator[tuple[list[str], Statement]]:
        """Yield statements that publish the same, each with the topics of its rows; `read_ids` reads their results."""
        sql = self._insert("id, topic", IDS)
        for topics, records in self._gathered():
            yield topics, Statement(sql, {"rows": f"[{','.join(records)}]", "expected": len(records)})

    def _gathered(self) -> Iterator[tuple[list[str], list[str]]]:
        rows = ({"priority": DEFAULT_PRIORITY} | each for each in self.rows)
        return _gather({name: row[name] for name in self.columns if name in row} for row in rows)

    def _next_text(self, most_rows: int, enough_chars: int) -> bytes:
        """Return the lines of the next rows; nothing after the last one."""
        to_line = _plain_line if self.columns is PLAIN else self._line()
        lines, chars = [], 0
        for row in islice(self.rows, most_rows):
            line = to_line(row)
            lines.append(line)
            chars += len(line)
            if chars >= enough_chars:
                break
        return "".join(lines).encode()

    def _line(self) -> Callable[[dict[str, Any]], str]:
        left_out = dict.fromkeys(self.columns, "\\N") | {"priority": str(DEFAULT_PRIORITY)}

        def to_line(row: dict[str, Any]) -> str:
            fields = left_out.copy()
            for column, value in row.items():
                fields[column] = _escaped(value) if isinstance(value, str) else _field(value)
            return "\t".join(fields.values()) + "\n"

        return to_line

    def _insert(self, returning: str, answer: str) -> str:
        values = ", ".join(CASTS.get(name, f"r.{name}") for name in self.columns)
        return (
            "WITH published AS ("  # noqa: S608
            f"INSERT INTO messages.message ({', '.join(self.columns)}) SELECT {values} "
            "FROM ROWS FROM (pg_catalog.json_to_recordset(%(rows)s::pg_catalog.text::pg_catalog.json) "
            f"AS ({_record_type(self.columns)})) WITH ORDINALITY AS r "
            f"ORDER BY r.ordinality RETURNING {returning}) SELECT {answer} FROM published"
        )


@dataclass(frozen=True, slots=True)
class CallPart:
    """Messages that are more than a row, since they may meet another one with their key, or wait for others.

    Attributes:
        rows: the arguments of messages.publish for each; they can be taken once.
    """

    rows: Iterator[dict[str, Any]]

    def calls(self) -> Iterator[Statement]:
        """Yield statements that publish them; `read_outcomes` reads what each returns."""
        return (Statement(CALLS, {"rows": f"[{','.join(records)}]"}) for _, records in _gather(self.rows))


def _gather(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the rows for each statement: their topics, and the rows as JSON."""
    topics: list[str] = []
    records: list[str] = []
    chars = 0
    for row in rows:
        topics.append(row["topic"])
        records.append(json.dumps({name: _text(value) for name, value in row.items()}, ensure_ascii=False))
        chars += len(records[-1])
        if len(records) >= INSERT_ROWS or chars >= INSERT_CHARS:
            yield topics, records
            topics, records, chars = [], [], 0
    if records:
        yield topics, records


class CopyRows:
    """The messages of one `publish_many`, as at most four parts.

    The first part has messages without options. From the first message with one on, a second part has all columns but
    those that few messages set, and the times, which are the server's defaults. From the first message on that has its
    own time, or one of the others, a third part sets all of them: the server's clock as it was read before, plus the
    time that has passed since. From the first message on that is more than a row, a fourth part calls messages.publish
    for each.

    Attributes:
        count: how many were yielded.
    """

    def __init__(
        self, messages: Iterable[NewMessage], sending: NoTrace | PublishSpan = NO_TRACE, cipher: Cipher | None = None
    ) -> None:
        self.count = 0
        self._sending = sending
        self._cipher = cipher
        self._began = 0
        # Only these two types: iterating over another type may run code of the caller, which may use the connection.
        self._listed = messages if isinstance(messages, list | tuple) and type(messages) in (list, tuple) else None
        self._keys: deque[tuple[int, str, str]] = deque(maxlen=KEYS)
        self._carry = sending.carry
        self._schemas = SchemaSnapshot(None)
        self._rows = self._checked(messages)
        self._next = next(self._rows, None)

    def again(self) -> CopyRows | None:
        """Return the same messages from the first one on; None if they can be taken only once."""
        return None if self._listed is None else CopyRows(self._listed, self._sending, self._cipher)

    def parts(self, found: tuple[Any, ...] | None) -> Iterator[CopyPart | CallPart]:
        """Yield the parts; take each whole before the next.

        found: what READ_START returned, the server's clock and all schemas.
        """
        assert found is not None  # noqa: S101 - READ_START returns a row
        started, clock = time.monotonic(), FIRST + timedelta(microseconds=found[0])
        self._schemas = SchemaSnapshot(found[1])

        def now() -> datetime:
            moment: datetime = clock + timedelta(seconds=time.monotonic() - started)
            return moment

        if self._next is not None and self._is_plain(self._next):
            yield CopyPart(PLAIN, self._plain(), self._begin, self._listed is None)
        if self._next is not None and not _is_timed(self._next):
            yield CopyPart(UNTIMED, self._untimed(), self._begin, self._listed is None)
        if self._next is not None and not _is_called(self._next):
            yield CopyPart(ALL, self._timed(now), self._begin, self._listed is None)
        if self._next is not None:
            yield CallPart(self._called())

    def key_of(self, line: int) -> tuple[str, str] | None:
        """Return topic and key of a line of the current COPY, if they are remembered."""
        number = self._began + line
        if self._listed is None:
            return next((each[1:] for each in self._keys if each[0] == number), None)
        message = self._listed[number - 1]
        return None if message.key is None else (message.topic, message.key)

    def _begin(self) -> None:
        self._began = self.count

    def _checked(self, messages: Iterable[NewMessage]) -> Iterator[dict[str, Any]]:
        for number, message in enumerate(messages, 1):
            try:
                columns = _columns_of_many(message)
                yield columns if self._carry is None else self._carry(columns)
            except InvalidMessage as error:
                raise InvalidMessage(f"message number {number}: {error}") from error

    def _plain(self) -> Iterator[dict[str, Any]]:
        while self._next is not None and self._is_plain(self._next):
            yield self._take(self._next)

    def _is_plain(self, row: dict[str, Any]) -> bool:
        # An encrypted row has other columns than before.
        return len(row) == len(PLAIN) and "payload" in row and self._cipher is None

    def _untimed(self) -> Iterator[dict[str, Any]]:
        while self._next is not None and not _is_timed(self._next):
            yield self._take(self._next)

    def _timed(self, now: Callable[[], datetime]) -> Iterator[dict[str, Any]]:
        while self._next is not None and not _is_called(self._next):
            row = self._next | _times(self._next, now())
            row.pop("ttl", None)
            yield self._take(row)

    def _called(self) -> Iterator[dict[str, Any]]:
        while self._next is not None:
            row = {"on_conflict": "error"} | self._next
            if isinstance(row.get("available_at"), timedelta):
                row["delay"] = row.pop("available_at")
            yield self._take(row)

    def _take(self, row: dict[str, Any]) -> dict[str, Any]:
        try:
            self._schemas.check(row)
        except InvalidPayload as error:
            raise InvalidPayload(f"{row['topic']} (message number {self.count + 1})", error.problems) from error
        self.count += 1
        if "key" in row and self._listed is None:
            self._keys.append((self.count, row["topic"], row["key"]))
        self._next = next(self._rows, None)
        if self._cipher is None:
            return row
        check_append(row["topic"], row.get("on_conflict"), self._cipher)
        return self._cipher.encrypt_columns(row)


def _columns_of_many(message: NewMessage) -> dict[str, Any]:
    columns = to_columns(message)
    return columns if is_a_row(columns, message.on_conflict) else columns | {"on_conflict": message.on_conflict}


def _is_called(row: dict[str, Any]) -> bool:
    return "on_conflict" in row


def _is_timed(row: dict[str, Any]) -> bool:
    return not RARE.isdisjoint(row)


def _times(row: dict[str, Any], now: datetime) -> dict[str, datetime]:
    wait = row.get("available_at", timedelta(0))
    available_at = now + wait if isinstance(wait, timedelta) else wait
    times = {"available_at": available_at}
    return times | {"expires_at": max(available_at, now) + row["ttl"]} if "ttl" in row else times


def _plain_line(row: dict[str, Any]) -> str:
    return _escaped("\t".join(row.values())) + "\n"


def _escaped(text: str) -> str:
    """Return text for COPY. No string has a line break or a tab: JSON escapes them, names have none."""
    return text.replace("\\", "\\\\")


def _field(value: Any) -> str:
    """Return one value that is not a string as a field of COPY."""
    match value:
        case bytes():
            return "\\\\x" + value.hex()
        case datetime():
            return value.isoformat()
        case timedelta():
            return interval_text(value)
        case _:
            return str(value)


def _text(value: Any) -> str | int:
    match value:
        case bytes():
            return value.hex()
        case datetime():
            return value.isoformat()
        case timedelta():
            return interval_text(value)
        case _:
            plain: str | int = value
            return plain
