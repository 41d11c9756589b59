"""Finds faults in rows that are to be published, column by column.

The database is asked only if nothing else can decide.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pgrouse.config.policy.own_policy import read_own_policy
from pgrouse.config.policy.payload_schema import SchemaUnusable
from pgrouse.errors import InvalidPayload
from pgrouse.publishing.new_message import FIRST, LAST, MAX_ATTEMPTS, MAX_ID, MAX_WAIT, ON_CONFLICT
from pgrouse.publishing.schema_cache import SchemaSnapshot
from pgrouse.values import jsonb, printable
from pyspark_pgrouse.publish.columns import CORRUPT

if TYPE_CHECKING:
    from pyspark_pgrouse.publish.columns import Columns

# As in pgrouse.new_message, in the syntax of RE2.
TOPIC = r"\A[A-Za-z0-9][A-Za-z0-9._:-]{0,199}\z"
LABEL = rf"\A[^{printable.RE2}]{{1,200}}\z"
MAX_HEADER_BYTES = 65536
MICROSECOND = timedelta(microseconds=1)
LONGEST_US = MAX_WAIT // MICROSECOND
OWN_TIMEOUT_US = (1000, timedelta(days=30) // MICROSECOND)
OWN_RETENTION_US = (timedelta(hours=1) // MICROSECOND, LONGEST_US)
FIRST_US, LAST_US = 0, (LAST - FIRST) // MICROSECOND

# A mask of the faulty rows, and their fault.
Fault = tuple["pa.Array", str]


def faults(columns: Columns, count: int) -> pa.Array:
    """Return the fault of each row; null = no fault can be seen here.

    Args:
        columns: from `publish_columns.normal`.
        count: how many rows there are.
    """
    found = pa.nulls(count, pa.string())
    for mask, reason in _faults(columns, count):
        wrong = pc.fill_null(mask, False)
        if pc.any(wrong).as_py():
            found = pc.if_else(pc.and_(wrong, pc.is_null(found)), reason, found)
    return found


def _faults(columns: Columns, count: int) -> Iterator[Fault]:
    if CORRUPT in columns:
        yield columns[CORRUPT].is_valid(), "the line cannot be read"
    yield from _topic_faults(columns, count)
    yield from _content_faults(columns, count)
    for name in ("channel", "key"):
        if name in columns:
            unfit = pc.invert(pc.match_substring_regex(columns[name], LABEL))
            yield unfit, f"{name} must be a string of 1 to 200 printable characters"
    yield from _outside(columns, "priority", 0, 9, "an integer from 0 to 9")
    yield from _outside(columns, "max_attempts", 0, MAX_ATTEMPTS, f"an integer from 0 to {MAX_ATTEMPTS}")
    yield from _outside(columns, "batch_id", 1, MAX_ID, "the id of a batch")
    for name in ("delay", "ttl"):
        yield from _outside(columns, name, 0, LONGEST_US, f"from 0 to {MAX_WAIT.days:,} days")
    yield from _outside(columns, "timeout", *OWN_TIMEOUT_US, "from 1 ms to 30 days")
    yield from _outside(columns, "retention", *OWN_RETENTION_US, "from 1 hour to 36,500 days")
    yield from _backoff_faults(columns)
    for name in ("available_at", "expires_at"):
        yield from _outside(columns, name, FIRST_US, LAST_US, f"between {FIRST.year} and {LAST.year}")
    yield from _both(columns, "delay", "available_at")
    yield from _both(columns, "ttl", "expires_at")
    yield from _conflict_faults(columns)


def _topic_faults(columns: Columns, count: int) -> Iterator[Fault]:
    yield _absent(columns, "topic", count), "topic is missing"
    if "topic" in columns:
        topics = columns["topic"]
        unfit = pc.invert(pc.match_substring_regex(topics, TOPIC))
        yield unfit, "topic is no topic name: use 1 to 200 of A-Z a-z 0-9 . _ : - and a letter or digit first"
        yield pc.ends_with(topics, ".dlq"), "topic is reserved: names that end with .dlq are those of dead letters"


def _content_faults(columns: Columns, count: int) -> Iterator[Fault]:
    no_payload, no_body = (_absent(columns, name, count) for name in ("payload", "body"))
    yield pc.and_(no_payload, no_body), "payload is missing: JSON's null is the string null"
    yield pc.invert(pc.or_(no_payload, no_body)), "payload and body were both given: a message has one of them"
    for name, limit in (("payload", jsonb.MAX_BYTES), ("body", jsonb.MAX_BYTES), ("headers", MAX_HEADER_BYTES)):
        if name in columns:
            yield pc.greater(pc.binary_length(columns[name]), limit), f"{name} has more than {limit:,} bytes"


def _conflict_faults(columns: Columns) -> Iterator[Fault]:
    if "on_conflict" not in columns:
        return
    modes = columns["on_conflict"]
    unknown = pc.invert(pc.is_in(modes, pa.array([*ON_CONFLICT, None])))
    yield unknown, f"on_conflict must be one of {', '.join(ON_CONFLICT)}"
    keyless = _absent(columns, "key", len(modes))
    yield pc.and_(pc.not_equal(modes, "error"), keyless), "on_conflict needs a key"
    if "body" in columns:
        appended = pc.and_(pc.equal(modes, "append"), pc.is_valid(columns["body"]))
        yield appended, "on_conflict append gathers payloads: a body cannot be appended"


def _backoff_faults(columns: Columns) -> Iterator[Fault]:
    if "backoff" not in columns:
        return
    # Few of them differ.
    for text in pc.unique(columns["backoff"].drop_null()).to_pylist():
        if fault := _backoff_fault(text):
            yield pc.equal(columns["backoff"], text), fault


def _backoff_fault(text: str) -> str | None:
    try:
        given = json.loads(text) if text.startswith("{") else text
    except (ValueError, RecursionError) as error:
        return f"backoff is not JSON: {error}"
    try:
        read_own_policy({"backoff": given})
    except ValueError as error:
        return str(error)
    return None


def _outside(columns: Columns, name: str, first: int, last: int, expected: str) -> Iterator[Fault]:
    if name in columns:
        column = columns[name]
        yield pc.or_(pc.less(column, first), pc.greater(column, last)), f"{name} must be {expected}"


def _both(columns: Columns, one: str, other: str) -> Iterator[Fault]:
    if one in columns and other in columns:
        mask = pc.and_(pc.is_valid(columns[one]), pc.is_valid(columns[other]))
        yield mask, f"{one} and {other} were both given: use one of them"


def _absent(columns: Columns, name: str, count: int) -> pa.Array:
    return pc.is_null(columns[name]) if name in columns else pa.repeat(pa.scalar(True), count)


def misfits(columns: Columns, schemas: SchemaSnapshot) -> pa.Array:
    """Return for each row why its payload does not match the payload_schema of its topic; null = it does."""
    topics = columns["topic"].to_pylist()
    payloads = columns["payload"].to_pylist() if "payload" in columns else [None] * len(topics)
    return pa.array([_misfit(schemas, *row) for row in zip(topics, payloads, strict=True)], pa.string())


def _misfit(schemas: SchemaSnapshot, topic: str, payload: str | None) -> str | None:
    try:
        schemas.check({"topic": topic, "payload": payload})
    except (InvalidPayload, SchemaUnusable) as error:
        return str(error)
    except ValueError as error:
        return f"payload is not JSON: {error}"
    return None


def unreadable(columns: Columns, count: int) -> pa.Array:
    """Return for each row which part of it is not JSON, according to Python's parser.

    This takes time: use it only after a refused COPY.
    """
    found: list[str | None] = [None] * count
    for name in ("headers", "payload"):
        if name in columns:
            found = [
                _unreadable(name, text) or before for text, before in zip(columns[name].to_pylist(), found, strict=True)
            ]
    return pa.array(found, pa.string())


def _unreadable(name: str, text: str | None) -> str | None:
    if text is None:
        return None
    try:
        json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return f"{name} is not JSON: {error}"
    return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no number of JSON")
