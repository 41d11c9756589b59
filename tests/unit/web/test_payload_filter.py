"""The filter of messages by their payload: the input becomes a jsonpath and perhaps a value."""

from __future__ import annotations

import time

import pytest

from pgrouse.web.search.search import _payload_filter


@pytest.mark.parametrize(
    ("text", "path", "value"),
    [
        ("order.id = 7", '$."order"."id"', "7"),
        ("  $.order.id==7  ", '$."order"."id"', "7"),
        ("lines[*].sku=a b", '$."lines"[*]."sku"', '"a b"'),
        ("note = a=b", '$."note"', '"a=b"'),
    ],
)
def test_a_name_and_a_value_match_equal_values(text: str, path: str, value: str) -> None:
    assert _payload_filter(text) == (path, value)


@pytest.mark.parametrize("text", ["$ ? (@.id == 7)", "$.a", "strict $.a", "lax $ ? (@.a > 1 && @.b == 2)"])
def test_a_jsonpath_is_passed_unchanged(text: str) -> None:
    assert _payload_filter(text) == (text, None)


def test_a_name_alone_matches_its_presence() -> None:
    assert _payload_filter("order.id") == ('$."order"."id"', None)
    assert _payload_filter("order =  ")[1] is None


@pytest.mark.parametrize("piece", [" ", "$ ", "a ", " =", "=", "[", "a.", "[1]"])
def test_a_long_filter_is_parsed_quickly_whatever_it_contains(piece: str) -> None:
    began = time.process_time()

    _payload_filter(piece * (200_000 // len(piece)))

    assert time.process_time() - began < 5
