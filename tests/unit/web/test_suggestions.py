"""What the filters of a list suggest."""

from __future__ import annotations

import json
from typing import Any

from pgrouse.web.search.suggestions import MAX_SUGGESTIONS, Suggestions, suggest

NOTHING: dict[str, Any] = {"channel": None, "key": None, "error": None, "preview": None}


def test_values_are_suggested_once_and_in_order() -> None:
    rows = [
        NOTHING | {"channel": "b", "key": "k", "error": 'Traceback\n  File "x"\nKeyError: 7'},
        NOTHING | {"channel": "a"},
        NOTHING | {"channel": "b", "key": ""},
    ]

    assert suggest(rows, []) == Suggestions(["a", "b"], ["k"], ["KeyError: 7"], [], [])


def test_paths_lead_to_what_can_be_compared() -> None:
    preview = (
        '{"customer": {"id": 7, "plan": {"name": "solo", "of": {"deeper": {"still": 1}}}}, "items": [1], "paid": '
        'null, "a.b": 1, "x y": 2}'
    )

    assert suggest([NOTHING | {"preview": preview}], []).payloads == [
        "customer.id = ",
        "customer.plan.name = ",
        "paid = ",
    ]


def test_a_preview_that_is_cut_or_no_object_suggests_nothing() -> None:
    for preview in ('{"customer": {"id": 7', "[1]", '"text"', "7", "\\x00ff", "[" * 20_000):
        assert suggest([NOTHING | {"preview": preview}], []).payloads == []


def test_there_are_not_too_many() -> None:
    rows = [NOTHING | {"key": f"k{number:03}"} for number in range(100)]

    assert len(suggest(rows, []).keys) == MAX_SUGGESTIONS


def test_a_header_is_suggested_as_the_filter_that_finds_it() -> None:
    texts = {
        "a": "acme",
        "b": "42",
        "c": "true",
        "d": " blank ",
        "e=f": "x",
        "g": "two\nlines",
        " h": "x",
        "i": '"quoted"',
    }
    headers = [*((name, json.dumps(text)) for name, text in texts.items()), ("n", "7.50")]

    assert suggest([], headers).headers == [
        "a = acme", 'b = "42"', 'c = "true"', 'd = " blank "', 'g = "two\\nlines"', 'i = "\\"quoted\\""', "n = 7.50",
    ]  # fmt: skip
