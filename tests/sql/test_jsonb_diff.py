"""messages.jsonb_diff: what differs between two rows."""

from __future__ import annotations

from typing import Any

from psycopg.types.json import Jsonb

from tests.sql.queue import Queue


def changes(queue: Queue, old: Any, new: Any, without: list[str] | None = None) -> Any:
    return queue.value("SELECT messages.jsonb_diff(%s, %s, %s)", [Jsonb(old), Jsonb(new), without or []])


def test_each_key_that_differs_has_its_old_and_its_new_value(queue: Queue) -> None:
    found = changes(queue, {"a": 1, "b": 2, "c": None}, {"a": 1, "b": 3, "c": None, "d": [1]})

    assert found == {"b": {"old": 2, "new": 3}, "d": {"old": None, "new": [1]}}


def test_what_is_missing_and_what_is_null_are_the_same(queue: Queue) -> None:
    assert changes(queue, {}, {"a": None}) == {}


def test_keys_that_do_not_count_are_left_out(queue: Queue) -> None:
    assert changes(queue, {"a": 1, "at": 1}, {"a": 2, "at": 2}, ["at"]) == {"a": {"old": 1, "new": 2}}


def test_a_long_value_is_cut(queue: Queue) -> None:
    new = changes(queue, {}, {"schema": {"x": "y" * 5000}})["schema"]["new"]

    assert len(new) == 1001
    assert new.startswith('{"x": "yyy')
