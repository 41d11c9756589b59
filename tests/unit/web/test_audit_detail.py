"""The detail of an action in the audit, as people read it."""

from __future__ import annotations

from typing import Any

import pytest

from pgrouse.web.pages.audit import detail_lines


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("00:02:00", "2m"),
        ("3 days 01:00:00.5", "3d1h500ms"),
        ("1 day", "1d"),
        ("2026-11-27T04:01:18.117486+00:00", "2026-11-27 04:01:18 UTC"),
        ("2026-11-27T05:01:18+01:00", "2026-11-27 04:01:18 UTC"),
        ("0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00+14:00"),
        ("THE relay is down", "THE relay is down"),
        ("", ""),
        (None, "\N{EN DASH}"),
        (True, "true"),
        (7, "7"),
        ([39, 40], "39, 40"),
        ({"redriven": 5, "gone": 0}, "redriven 5"),
        ({"prune": 0}, "nothing"),
        ({"base": "2s"}, '{"base": "2s"}'),
        ({"is": True}, '{"is": true}'),
        ({}, "{}"),
        ("\u202e" + "x" * 500, "\\u202e" + "x" * 399 + "…"),
    ],
)
def test_a_value_is_written_for_people(value: Any, text: str) -> None:
    assert detail_lines("pause", {"a": value}) == [("a", text, None)]


def test_a_change_has_both_values_and_what_was_unset_has_none() -> None:
    changes = {"timeout": {"old": None, "new": "00:02:00"}, "max_attempts": {"old": 3, "new": 7}, "odd": 1}

    assert detail_lines("set_policy", {"changes": changes}) == [("timeout", "2m", None), ("max_attempts", "7", "3")]


def test_an_added_schedule_says_what_differs_from_the_defaults() -> None:
    values = {"name": "n", "topic": "t", "cron": "@daily", "jitter": "00:00:00", "payload": {}, "missed": "all"}
    values |= {"while_paused": "publish"}
    detail = {"changes": {name: {"new": value} for name, value in values.items()}}

    assert detail_lines("add_schedule", detail) == [("cron", "@daily", None), ("missed", "all", None)]
