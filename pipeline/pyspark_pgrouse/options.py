"""The options of the format `pgrouse`: their names, their values, and which can be combined."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from pgrouse.errors import ConfigError
from pyspark_pgrouse.connection.queue_dsn import dsn_of, queue_dsn

if TYPE_CHECKING:
    from pgrouse.config.config import DatabaseSettings

T = TypeVar("T", int, None)


class Mode(StrEnum):
    """Which messages are read."""

    ARCHIVE = "archive"
    DEAD = "dead"
    READY = "ready"
    PUBLISH = "publish"


class Operation(StrEnum):
    """The operation. READ stands for BATCH or STREAM before Spark has told which."""

    READ = "read"
    BATCH = "batch"
    STREAM = "stream"
    WRITE = "write"


ENDED = (Mode.ARCHIVE, Mode.DEAD)
READING = (*ENDED, Mode.READY)
# The modes that an option can be used with; the names are those that are shown.
READ_OPTIONS: dict[str, tuple[Mode, ...]] = {
    "mode": READING,
    "dsn": READING,
    "schema": READING,
    "topics": READING,
    "columns": READING,
    "since": ENDED,
    "until": ENDED,
    "numPartitions": READING,
    "maxRowsPerBatch": ENDED,
    "maxBytesPerBatch": ENDED,
    "startingOffsets": ENDED,
    "payload": READING,
    "pushdown": ENDED,
    "limit": READING,
    "groupBy": READING,
    "replicaDsn": ENDED,
}
WRITE_OPTIONS = ("dsn", "schema", "topic", "job", "maxRejected")
STREAM_OPTIONS = ("maxRowsPerBatch", "maxBytesPerBatch", "startingOffsets")
BATCH_OPTIONS = ("pushdown", "limit", "groupBy")
# Spark also passes its own options to the sink of a stream.
SPARK_OPTIONS = ("checkpointlocation",)

JSON = "json"
BINARY = "binary"
SCHEMA = "schema"
INFER = "infer"
ALL_COLUMNS = "*"
EARLIEST = "earliest"
LATEST = "latest"
DEFAULT_PARTITIONS = 4
DEFAULT_MAX_ROWS = 1_000_000
MAX_PARTITIONS = 10_000


@dataclass(frozen=True)
class Options:
    """The options of one read or write, checked.

    Created by `parse`; the defaults are those of a read without options.
    """

    mode: Mode = Mode.ARCHIVE
    dsn: str | None = field(default=None, repr=False)
    """A connection string or URI of libpq; None = the environment (PG*, PGSERVICE), as libpq reads it."""
    schema: str | None = None
    """The schema of the queue; None = that of the environment, else `messages`."""
    replica_dsn: str | None = field(default=None, repr=False)
    """The connection string of a standby that the rows are read from, while `dsn` plans the read; None = `dsn` does
    both."""
    topics: tuple[str, ...] = ()
    """Only these; () = all."""
    columns: tuple[str, ...] = ()
    """Only these, in this order; () = the default of `schema.default_columns`; `*` = all."""
    since: datetime | None = None
    """Only what was archived at this moment or later."""
    until: datetime | None = None
    """Only what was archived before this moment."""
    partitions: int = DEFAULT_PARTITIONS
    """How many tasks read, each with its own connection."""
    max_rows: int = DEFAULT_MAX_ROWS
    """The maximum number of rows in one micro-batch."""
    max_bytes: int = 0
    """The maximum bytes of stored payloads in one micro-batch, though at least one row; 0 = no limit."""
    starting: str = EARLIEST
    """Where a new stream begins: `earliest`, `latest`, or an offset as JSON."""
    payload: str | None = None
    """`json`, `binary`, the fields of the payload in Spark's DDL, or their source: `schema`, `infer`. None = `json`, if
    the payload is read at all."""
    job: str | None = None
    pushdown: bool | None = None
    """Whether PostgreSQL runs the filters of the query; None = if the session allows it."""
    group_by: tuple[str, ...] = ()
    """Columns whose values PostgreSQL counts: a row for each combination, with a column `count`; () = every row is
    read."""
    limit: int | None = None
    """The maximum number of rows to read, in any order; None = all."""
    topic: str | None = None
    """The topic of rows without their own topic."""
    max_rejected: int | None = None
    """If more rows than this cannot be published, none is published; None = any number may be rejected."""

    @classmethod
    def parse(
        cls, mapping: Mapping[str, str], operation: Operation = Operation.READ, now: datetime | None = None
    ) -> Options:
        """Parse the options that Spark passes: the names in any case, the values as text.

        Args:
            mapping: the options.
            operation: the operation; more is checked when it is known.
            now: the time from which durations in `since` and `until` are counted back.

        Raises:
            ConfigError: an option is not known, has a value that is not allowed, or cannot be combined with another.
        """
        given = {str(name).lower(): str(value) for name, value in mapping.items()}
        return (
            _for_writing(given)
            if operation is Operation.WRITE
            else _for_reading(given, operation, now or datetime.now(UTC))
        )


def configured_dsn() -> str | None:
    """Return the connection string that the commands of pgrouse use; None = libpq's environment.

    Raises:
        ConfigProblems: the configuration has an error.
    """
    return dsn_of(_configured())


def _configured() -> DatabaseSettings:
    from pgrouse.config.config import load  # noqa: PLC0415 - slow to import: executors need none of it

    return load().database


def _database(given: dict[str, str]) -> str | None:
    """Return the connection string of an option, or else the one that the commands of pgrouse use."""
    if given.get("dsn"):
        return queue_dsn(given["dsn"], given.get("schema"))
    settings = _configured()
    return queue_dsn(settings.dsn or None, given.get("schema") or settings.schema)


def _for_writing(given: dict[str, str]) -> Options:
    _check_known(set(given) - set(SPARK_OPTIONS), WRITE_OPTIONS, READ_OPTIONS, "is for reading, not for writing")
    return Options(
        mode=Mode.PUBLISH,
        dsn=_database(given),
        schema=given.get("schema"),
        topic=given.get("topic") or None,
        job=given.get("job") or None,
        max_rejected=number(given, "maxRejected", None, least=0),
    )


def _for_reading(given: dict[str, str], operation: Operation, now: datetime) -> Options:
    _check_known(given, READ_OPTIONS, WRITE_OPTIONS, "is for writing, not for reading")
    mode = _mode(given)
    _check_combination(given, mode, operation)
    options = Options(
        mode=mode,
        dsn=_database(given),
        schema=given.get("schema"),
        replica_dsn=_replica(given),
        topics=names(given, "topics"),
        columns=names(given, "columns"),
        since=moment(given, "since", operation, now),
        until=moment(given, "until", operation, now),
        partitions=number(given, "numPartitions", 1 if mode is Mode.READY else DEFAULT_PARTITIONS, MAX_PARTITIONS),
        max_rows=number(given, "maxRowsPerBatch", DEFAULT_MAX_ROWS),
        max_bytes=number(given, "maxBytesPerBatch", 0),
        starting=_starting(given),
        payload=_payload(given, operation),
        pushdown=flag(given, "pushdown"),
        group_by=names(given, "groupBy"),
        limit=number(given, "limit", None),
    )
    if options.since and options.until and options.since >= options.until:
        raise ConfigError(f"option since ({options.since}) is not before option until ({options.until})")
    if options.pushdown and options.limit is not None:
        raise ConfigError(
            "options pushdown and limit do not go together: the filters of the query come after the limit"
        )
    if options.group_by and (options.columns or options.payload or options.limit):
        raise ConfigError("option groupBy does not go with columns, payload and limit: it reads groups of messages")
    if options.payload in (SCHEMA, INFER) and len(options.topics) != 1:
        raise ConfigError(
            f"option payload={options.payload} needs option topics with one topic: its payloads have one form"
        )
    return options


def _check_known(given: Iterable[str], known: Iterable[str], others: Iterable[str], why: str) -> None:
    shown = {name.lower(): name for name in known}
    elsewhere = {name.lower(): name for name in others}
    for name in sorted(given):
        if name in shown:
            continue
        if name in elsewhere:
            raise ConfigError(f"option {elsewhere[name]} {why}; known here: {', '.join(shown.values())}")
        raise ConfigError(f"no option {name}: {hint(name, shown.values())}")


def hint(name: str, known: Iterable[str]) -> str:
    """Return what may be meant by an unknown name: the nearest known one, if one is near, and all of them."""
    shown = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), shown, 1)
    return "".join(f"did you mean {shown[each]}? " for each in near) + f"Known: {', '.join(shown.values())}"


def _replica(given: dict[str, str]) -> str | None:
    return queue_dsn(given["replicadsn"], given.get("schema")) if given.get("replicadsn") else None


def _mode(given: dict[str, str]) -> Mode:
    text = given.get("mode", Mode.ARCHIVE)
    if text not in READING:
        raise ConfigError(f"option mode must be one of {', '.join(READING)}, found {text!r}")
    return Mode(text)


def _check_combination(given: dict[str, str], mode: Mode, operation: Operation) -> None:
    for name, modes in READ_OPTIONS.items():
        if name.lower() in given and mode not in modes:
            raise ConfigError(f"option {name} does not go with mode {mode}: it is for mode {' and '.join(modes)}")
    if operation is Operation.STREAM and mode is Mode.READY:
        raise ConfigError(
            "mode ready is for spark.read: what waits changes all the time. "
            "To process it, use `pgrouse pipeline consume`"
        )
    wrong, where = {Operation.BATCH: (STREAM_OPTIONS, "streams"), Operation.STREAM: (BATCH_OPTIONS, "batch reads")}.get(
        operation, ((), "")
    )
    for name in wrong:
        if name.lower() in given:
            raise ConfigError(f"option {name} is for {where}, and this is none")


def names(given: Mapping[str, str], option: str) -> tuple[str, ...]:
    """Return the names that an option has, with commas between them; () if it is not given."""
    text = given.get(option.lower())
    found = () if text is None else tuple(name.strip() for name in text.split(","))
    if "" in found:
        raise ConfigError(f"option {option} must be names with commas between them, found {text!r}")
    return found


def moment(given: Mapping[str, str], name: str, operation: Operation, now: datetime) -> datetime | None:
    """Return the moment that an option names, or how long before now it is; None if it is not given."""
    text = given.get(name)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return _moment_before(text, name, operation, now)
    if found.tzinfo is None:
        raise ConfigError(f"option {name} needs a time zone, found {text!r}: write {text}Z for UTC")
    return found.astimezone(UTC)


def _moment_before(text: str, name: str, operation: Operation, now: datetime) -> datetime:
    try:
        before = _duration(text)
    except ValueError as error:
        expected = "a moment like 2026-03-01T00:00Z or a duration before now like 2h"
        raise ConfigError(f"option {name} must be {expected}, found {text!r}") from error
    if operation is Operation.STREAM:
        raise ConfigError(
            f"option {name} of a stream must be a moment, found the duration {text!r}: a batch that is read again "
            "must find the same rows"
        )
    return now - before


def number(given: Mapping[str, str], name: str, default: T, most: int = 2**63 - 1, least: int = 1) -> int | T:
    """Return the number that an option has; the default if it is not given."""
    text = given.get(name.lower())
    if text is None:
        return default
    # At most 19 digits: int() would take long for more digits, and would accept underscores.
    if not (text.isascii() and text.isdecimal() and len(text) <= 19 and least <= int(text) <= most):  # noqa: PLR2004
        raise ConfigError(f"option {name} must be a whole number from {least} to {most}, found {text!r}")
    return int(text)


def _starting(given: dict[str, str]) -> str:
    text = given.get("startingoffsets", EARLIEST)
    if text in (EARLIEST, LATEST):
        return text
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigError(f"option startingOffsets must be earliest, latest or an offset as JSON, found {text!r}")
    return text


def _payload(given: dict[str, str], operation: Operation) -> str | None:
    if "payload" not in given:
        return None
    text = given["payload"].strip()
    if text == INFER and operation is Operation.STREAM:
        raise ConfigError(
            "option payload=infer is for batch reads: a stream must have the same columns whenever it starts. "
            "Infer them once, and name them: see payload_fields"
        )
    if text in (JSON, BINARY, SCHEMA, INFER) or " " in text:
        return text
    raise ConfigError(
        "option payload must be json, binary, schema, infer or fields like `order_id BIGINT, total DOUBLE`, "
        f"found {text!r}"
    )


def _duration(text: str) -> timedelta:
    from pgrouse.config import duration  # noqa: PLC0415 - slow to import: every session loads this module

    return duration.parse(text)


def flag(given: Mapping[str, str], name: str) -> bool | None:
    """Return whether an option is true; None if it is not given."""
    text = given.get(name.lower())
    if text is None:
        return None
    if text.lower() not in ("true", "false"):
        raise ConfigError(f"option {name} must be true or false, found {text!r}")
    return text.lower() == "true"
