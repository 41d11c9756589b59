"""Every function that is granted to a role has one binding in Python with the same arguments, defaults and types."""

from __future__ import annotations

import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import is_dataclass
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, NamedTuple, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import namedtuple_row

from pgrouse.client import calls
from pgrouse.client.call import Call, function_call, nothing
from pgrouse.config.duration import AnyDuration

ROOT = Path(__file__).parents[2]

# Granted, but not called by programs of pgrouse.
NOT_BOUND = {
    "called by triggers and constraints with the rights of the one who writes": {
        "check_policy",
        "check_backoff",
        "check_breaker",
        "is_printable",
        "long_number_bytes",
        "notify_inserted",
    },
    "expressions in other statements": {
        "display_json",
        "quantile",
        "unpack_histogram",
        "now",
        "silence_of",
        "alert_severity",
        "is_paused",
        "live_state",
        "due_at",
        "is_blocked",
        "topic_matches",
        "patterns_of",
        "inherits_from",
        "worker_of",
        "topic_regexps",
    },
    "called by pg_cron": {
        "expire_locks",
        "expire_messages",
        "propagate_missed_ends",
        "apply_missed_batch_changes",
        "update_breakers",
        "renotify_stale",
        "update_conditions",
        "maintain_partitions",
        "purge",
        "prune",
    },
    "written by publishing in the way of each driver": {"publish", "payload_schema_digest"},
}
# Their rows are of two kinds.
OF_SEVERAL_ROWS = {"find_messages", "claim_with_next_due"}

PYTHON_TYPES: dict[str, type] = {
    "bool": bool,
    "bytea": bytes,
    "float8": float,
    "int2": int,
    "int4": int,
    "int8": int,
    "interval": timedelta,
    "jsonb": str,
    "text": str,
    "timestamptz": datetime,
    "uuid": UUID,
    "xid8": str,
}
SAMPLES: dict[type, Any] = {
    bool: True,
    bytes: b"\x00\xff",
    int: 1,
    timedelta: timedelta(seconds=1),
    float: 0.5,
    str: "1",
    datetime: datetime(2026, 1, 2, tzinfo=UTC),
    UUID: UUID(int=1),
}
GRANTED = """
  SELECT p.proname AS name, p.pronargdefaults AS defaults,
         coalesce(p.proargnames[:p.pronargs], '{}') AS arguments,
         ARRAY(SELECT t.typname FROM unnest(p.proargtypes) WITH ORDINALITY AS a (type, nth)
           JOIN pg_type AS t ON t.oid = a.type
               ORDER BY a.nth) AS types
  FROM pg_proc AS p
  WHERE p.pronamespace = 'messages'::regnamespace AND p.prorettype <> 'trigger'::regtype
    AND EXISTS (SELECT FROM aclexplode(p.proacl) AS a JOIN pg_roles AS r ON r.oid = a.grantee
                WHERE r.rolname IN (
                  'messages_publisher', 'messages_worker', 'messages_operator', 'messages_analyst',
                  'messages_maintainer'))
  ORDER BY p.proname"""

Binding = Callable[..., Call[Any]]
# A duration may have several forms.
DURATION = set(get_args(AnyDuration))


class Function(NamedTuple):
    """A function of the server."""

    name: str
    defaults: int
    arguments: list[str]
    types: list[str]


def _bindings() -> Iterator[tuple[str, Binding]]:
    for module in pkgutil.walk_packages(calls.__path__, f"{calls.__name__}."):
        room = import_module(module.name)
        for name, function in inspect.getmembers(room, inspect.isfunction):
            if function.__module__ == room.__name__ and not name.startswith("_"):
                yield name, function


BINDINGS = dict(_bindings())
FUNCTIONS_NOT_BOUND = set().union(*NOT_BOUND.values())


@pytest.fixture
def granted(database: Any) -> dict[str, Function]:
    with database.connect() as conn:
        rows = conn.cursor(row_factory=namedtuple_row).execute(GRANTED).fetchall()
    return {row.name: Function(*row) for row in rows}


def test_every_granted_function_has_exactly_one_binding_or_a_reason(granted: dict[str, Function]) -> None:
    names = sorted(name for name, _ in _bindings())

    assert names == sorted(granted.keys() - FUNCTIONS_NOT_BOUND)
    assert granted.keys() >= FUNCTIONS_NOT_BOUND


def test_a_binding_has_the_arguments_and_the_defaults_of_its_function(granted: dict[str, Function]) -> None:
    for name, binding in BINDINGS.items():
        parameters = inspect.signature(binding).parameters.values()
        function = granted[name]

        assert [f"p_{each.name.rstrip('_')}" for each in parameters] == function.arguments, name
        assert sum(each.default is not each.empty for each in parameters) == function.defaults, name
        assert {each.default for each in parameters} <= {inspect.Parameter.empty, None}, name


def test_an_argument_of_a_binding_has_the_type_of_its_functions_argument(granted: dict[str, Function]) -> None:
    for name, binding in BINDINGS.items():
        hints = list(get_type_hints(binding).items())[:-1]
        for (argument, hint), type_name in zip(hints, granted[name].types, strict=True):
            assert _one(hint) == PYTHON_TYPES[type_name.removeprefix("_")], f"{name}({argument})"
            assert _is_of_several(hint) == type_name.startswith("_"), f"{name}({argument})"


def test_the_server_accepts_each_call_and_returns_the_declared_type(database: Any) -> None:
    with database.connect() as conn:
        for name, binding in BINDINGS.items():
            hints = get_type_hints(binding)
            (result,) = get_args(hints.pop("return"))
            every = {argument: _sample(hint) for argument, hint in hints.items()}

            _columns(conn, binding(**{argument: every[argument] for argument in _needed(binding)}))
            columns = _columns(conn, binding(**every))

            assert name in OF_SEVERAL_ROWS or columns == _expected(columns, result), name


def test_only_what_is_none_is_left_to_the_default_of_the_function() -> None:
    call = function_call("some", nothing, limit=0, force=False, name="", ids=[], after=None)

    assert call.statement.endswith(b"messages.some(p_limit => %s, p_force => %s, p_name => %s, p_ids => %s) AS f")
    assert call.values == [0, False, "", []]


def test_no_other_file_calls_a_function_that_has_a_binding() -> None:
    callers = {
        str(path.relative_to(ROOT)): found
        for folder in ("daemon", "pipeline")
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "client/calls" not in str(path) and (found := _called(path.read_text()))
    }

    assert callers == {}


def _called(text: str) -> list[str]:
    return sorted(set(re.findall(r"messages\.(\w+)\(", text)) & BINDINGS.keys())


def _columns(conn: psycopg.Connection[Any], call: Call[Any]) -> dict[str, type]:
    """Return the columns of a call, with their types, without making it."""
    cursor = conn.cursor().execute(call.statement + b" LIMIT 0", call.values)
    return {each.name: _python_type(conn, each.type_code) for each in cursor.description or ()}


def _python_type(conn: psycopg.Connection[Any], oid: int) -> type:
    if oid == VOID:
        return type(None)
    info = conn.adapters.types.get(oid)
    assert info, oid
    return PYTHON_TYPES[info.name]


VOID = 2278


def _needed(binding: Binding) -> list[str]:
    return [each.name for each in inspect.signature(binding).parameters.values() if each.default is each.empty]


def _expected(columns: dict[str, type], result: Any) -> dict[str, type]:
    """Return the columns of a result: the fields of its rows, or its one value."""
    row = next((each for each in _leaves(result) if is_dataclass(each) or hasattr(each, "_fields")), None)
    if row is None:
        return dict.fromkeys(columns, _one(result))
    return {column: _one(hint) for column, hint in get_type_hints(row).items()}


def _one(hint: Any) -> type:
    (kind,) = _scalars(hint)
    return kind


def _scalars(hint: Any) -> set[Any]:
    leaves = set(_leaves(hint))
    if leaves >= DURATION:
        return {timedelta}
    return leaves - {type(None)} or leaves


def _leaves(hint: Any) -> Iterator[Any]:
    if inner := get_args(hint):
        for each in inner:
            yield from _leaves(each)
    else:
        yield hint


def _is_of_several(hint: Any) -> bool:
    if get_origin(hint) in (Union, UnionType):
        return any(map(_is_of_several, get_args(hint)))
    return get_origin(hint) in (Sequence, list)


def _sample(hint: Any) -> Any:
    sample = next(SAMPLES[each] for each in SAMPLES if each in _scalars(hint))
    return [sample] if _is_of_several(hint) else sample
