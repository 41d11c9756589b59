"""The columns of a DataFrame that is published: their names, their types, and how they are converted."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from pgrouse.config.policy.own_policy import read_own_policy
from pgrouse.errors import ConfigError
from pgrouse.publishing.new_message import TOPIC
from pgrouse.publishing.publish_statement import NO_COLUMNS
from pyspark_pgrouse.options import hint
from pyspark_pgrouse.publish.json_text import as_json

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Spark's readers put a line that they cannot parse into this column; a row that has it is rejected.
CORRUPT = "_corrupt_record"
WHOLE = ("tinyint", "smallint", "int", "bigint")
NUMBERS = (*WHOLE, "float", "double", "decimal")
WAITS = ("interval day", "interval hour", "interval minute", "interval second", *NUMBERS)
ANYTHING = ("",)
# The beginning of the name of a type, as Spark writes it.
TYPES: dict[str, tuple[str, ...]] = {
    "topic": ("string",),
    "payload": ANYTHING,
    "body": ("binary",),
    "headers": ("string", "map<", "struct<"),
    "key": ("string", *WHOLE),
    "on_conflict": ("string",),
    "channel": ("string", *WHOLE),
    "priority": WHOLE,
    "delay": WAITS,
    "available_at": ("timestamp",),
    "ttl": WAITS,
    "expires_at": ("timestamp",),
    "max_attempts": WHOLE,
    "timeout": WAITS,
    "backoff": ("string", "map<", "struct<"),
    "retention": WAITS,
    "batch_id": WHOLE,
    CORRUPT: ("string",),
}
KNOWN = tuple(name for name in TYPES if name != CORRUPT)
Columns = dict[str, "pa.Array"]
MICROSECONDS = 1_000_000


def check(schema: StructType, topic: str | None) -> None:
    """Check that a DataFrame has columns that can be published.

    Args:
        schema: the schema of the DataFrame.
        topic: the topic of all rows, from the options.

    Raises:
        ConfigError: it has an unknown column, a column of another type, or lacks a column.
    """
    names = [field.name for field in schema.fields]
    for field in schema.fields:
        _check_type(field.name, field.dataType.simpleString())
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"column {twice[0]} occurs twice in the DataFrame")
    if "payload" not in names and "body" not in names:
        raise ConfigError("the DataFrame has neither a column payload nor a column body: one of them is the message")
    _check_topic("topic" in names, topic)


def _check_type(name: str, type_: str) -> None:
    if name in NO_COLUMNS:
        raise ConfigError(
            f"no column {name} of a message: a DataFrame is published without it: publish these rows by "
            "pgrouse.publish_many, or drop the column"
        )
    if name not in TYPES:
        raise ConfigError(f"no column {name} of a message: {hint(name, KNOWN)}. Drop it, or put it into payload")
    if name == "payload" and type_ == "binary":
        raise ConfigError("column payload is binary: bytes are published in a column body, JSON as a string")
    if type_ == "timestamp_ntz":
        raise ConfigError(f"column {name} has no time zone: cast it to TIMESTAMP")
    if not type_.startswith(TYPES[name]):
        expected = " or ".join(each.rstrip("<") for each in TYPES[name])
        raise ConfigError(f"column {name} is {type_}: it must be {expected}")


def _check_topic(in_rows: bool, topic: str | None) -> None:
    if in_rows and topic is not None:
        raise ConfigError("there is a column topic and an option topic: drop one of them")
    if not in_rows and topic is None:
        raise ConfigError("no column topic and no option topic: say where to publish")
    if topic is not None and not TOPIC.fullmatch(topic):
        raise ConfigError(f"option topic {topic!r:.250} is no topic name: use 1 to 200 of A-Z a-z 0-9 . _ : -")


def normal(batch: pa.RecordBatch, topic: str | None) -> Columns:
    """Return the columns, each converted to the type from which it is stored.

    JSON is text; delays and times are microseconds (since 1970); numbers have 64 bits. A column without any value is
    left out.
    """
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    made = {name: _normal(name, column) for name, column in given.items() if column.null_count < len(column)}
    if topic is not None:
        made["topic"] = pa.repeat(pa.scalar(topic), batch.num_rows)
    return made


def _normal(name: str, column: pa.Array) -> pa.Array:
    convert = _CONVERSIONS.get(name)
    return convert(column) if convert else column.cast(_TYPES.get(name, pa.string()))


def _json(column: pa.Array) -> pa.Array:
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return column.cast(pa.string()) if is_text else as_json(column)


def _backoff(column: pa.Array) -> pa.Array:
    """Return JSON as the server reads it. Few of many rows differ."""
    coded = _json(column).dictionary_encode()
    read = pa.array([_read_backoff(text) for text in coded.dictionary.to_pylist()], pa.string())
    return read.take(coded.indices)


def _read_backoff(text: str) -> str:
    """Read an object, or a kind like exponential. What is neither stays as it is: `publish_check` says why."""
    try:
        given = json.loads(text) if text.startswith("{") else text
        return json.dumps(read_own_policy({"backoff": given})["backoff"])
    except (ValueError, RecursionError):
        return text


def _moment(column: pa.Array) -> pa.Array:
    return column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())


def _wait(column: pa.Array) -> pa.Array:
    if pa.types.is_duration(column.type):
        return column.cast(pa.duration("us")).cast(pa.int64())
    seconds = column.cast(pa.float64())
    # A value that no clock can hold becomes one that is not allowed as a delay.
    bounded = pc.min_element_wise(pc.max_element_wise(seconds, -1.0, skip_nulls=False), 1e12, skip_nulls=False)
    known = pc.if_else(pc.is_nan(bounded), -1.0, bounded)
    return pc.round(pc.multiply(known, float(MICROSECONDS))).cast(pa.int64())


_TYPES = {"body": pa.binary(), "priority": pa.int64(), "max_attempts": pa.int64(), "batch_id": pa.int64()}
_CONVERSIONS: dict[str, Callable[[pa.Array], pa.Array]] = {
    **dict.fromkeys(("payload", "headers"), _json),
    "backoff": _backoff,
    **dict.fromkeys(("delay", "ttl", "timeout", "retention"), _wait),
    **dict.fromkeys(("available_at", "expires_at"), _moment),
}
