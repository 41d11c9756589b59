"""Valid payloads, and the errors of others."""

from __future__ import annotations

import dataclasses
import enum
import json
import uuid
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from pgrouse.errors import InvalidMessage
from pgrouse.values import jsonb


def nested(levels: int) -> Any:
    """Return nested lists of this depth."""
    value: Any = []
    for _ in range(levels - 1):
        value = [value]
    return value


class Color(enum.Enum):
    """A plain enum: json alone refuses it."""

    RED = "red"


class Order(BaseModel):
    """A model with an alias, as handlers validate it."""

    number: int = Field(alias="orderNumber")
    at: datetime


@dataclasses.dataclass
class Point:
    """A dataclass."""

    x: int


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def has_nul(value: Any) -> bool:
    """Return whether a string or key in the value contains a NUL."""
    match value:
        case str():
            return "\0" in value
        case list():
            return any(map(has_nul, value))
        case dict():
            return any(map(has_nul, [*value, *value.values()]))
        case _:
            return False


@pytest.mark.long
@given(JSON)
def test_json_is_restored_unchanged(value: Any) -> None:
    # Hypothesis makes no lone surrogates of its own accord, but it does make NULs.
    if has_nul(value):
        with pytest.raises(InvalidMessage, match="NUL"):
            jsonb.encode(value)
    else:
        assert json.loads(jsonb.encode(value)) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        ("\\u0000", '"\\\\u0000"'),
        (Order(orderNumber=7, at=datetime(2027, 1, 1, tzinfo=UTC)), '{"orderNumber":7,"at":"2027-01-01T00:00:00Z"}'),
        ({"p": Point(1)}, '{"p":{"x":1}}'),
        ([Color.RED, Decimal("1.50"), uuid.UUID(int=0)], '["red","1.50","00000000-0000-0000-0000-000000000000"]'),
        ((1, {2}), "[1,[2]]"),
        ({1: "a", None: "b"}, '{"1":"a","null":"b"}'),
        (["["] * 300, json.dumps(["["] * 300, separators=(",", ":"))),
        (nested(200), "[" * 200 + "]" * 200),
        (10**4299, "1" + "0" * 4299),
        (jsonb.Raw('{"total": 1.10, "n": 0.12345678901234567890}'), '{"total": 1.10, "n": 0.12345678901234567890}'),
    ],
)
def test_a_value_is_written_as_pydantic_and_json_write_it(value: Any, text: str) -> None:
    assert jsonb.encode(value) == text


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)

REFUSED: list[tuple[Any, str]] = [
    ({"a": [1, {"b": "x\0y"}]}, "payload['a'][1]['b'] contains a NUL character"),
    ({"a\0": 1}, "a key of payload contains a NUL character"),
    ({"a": "\ud800"}, "payload['a'] contains half of a surrogate pair"),
    ({"\udfff": 1}, "a key of payload contains half of a surrogate pair"),
    (float("nan"), "payload is nan, which JSON does not have"),
    ([float("inf")], "payload[0] is inf, which JSON does not have"),
    ({"a": -float("inf")}, "payload['a'] is -inf, which JSON does not have"),
    ({"a": 10**4301}, "payload['a'] is an integer of more than 4,300 digits"),
    (b"x", "payload is of type bytes, which has no JSON form: publish them as body="),
    ([{"f": memoryview(b"x")}], "payload[0]['f'] is of type memoryview, which has no JSON form"),
    ({(1, 2): 3}, "a key of payload is of type tuple: JSON has only strings as keys"),
    ({"x": object()}, "payload['x'] is of type object, which has no JSON form: convert it"),
    ([Point(1), {"p": Point("\0")}], "payload[1]['p']['x'] contains a NUL character"),  # type: ignore[arg-type]
    (nested(201), "payload is nested deeper than 200 levels"),
    (nested(1000), "payload is nested deeper than 200 levels"),
    (nested(100_000), "payload is nested deeper than 200 levels"),
    (CIRCLE, "is nested deeper than 200 levels, or contains itself"),
    ("x" * 16 * 1024 * 1024, "payload has 16,777,218 bytes, 16,777,216 is the limit"),
    ({"x": "y" * 64 * 1024 * 1024}, "payload has 67,108,872 bytes, 16,777,216 is the limit"),
]


@pytest.mark.parametrize(("value", "expected"), REFUSED, ids=[expected for _, expected in REFUSED])
def test_a_value_that_cannot_be_stored_is_refused_with_its_place(value: Any, expected: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        jsonb.encode(value)

    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' occurs twice in one object"),
        ('[{"x": {"b": 1, "b": 1}}]', "the key 'b' occurs twice"),
        ('{"a": }', "payload is not JSON: Expecting value at line 1, column 7"),
        ("", "payload is not JSON"),
        ("1 2", "payload is not JSON: Extra data"),
        ("{'a': 1}", "payload is not JSON"),
        ("[1e400]", "the number 1e400 is too large"),
        ("NaN", "NaN is not JSON"),
        ("[-Infinity]", "-Infinity is not JSON"),
        ('["\\u0000"]', "payload[0] contains a NUL character"),
        ('"\\ud800"', "payload contains half of a surrogate pair"),
        ("1" * 4301, "payload contains an integer of more than 4,300 digits"),
        ("[" * 1000 + "]" * 1000, "payload is nested deeper than 200 levels"),
        ("[" * 100_000, "payload is nested deeper than 200 levels"),
    ],
)
def test_invalid_json_text_is_refused_with_the_location(text: str, expected: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        jsonb.encode(jsonb.Raw(text))

    assert expected in str(caught.value)


@pytest.mark.long
def test_a_duplicate_key_among_very_many_is_found_in_linear_time() -> None:
    """An algorithm that reads all keys for each key would take an hour."""
    keys = "".join(f'"{n}": 1, ' for n in range(500_000))

    with pytest.raises(InvalidMessage, match="the key 'last' occurs twice"):
        jsonb.encode(jsonb.Raw("{" + keys + '"last": 1, "last": 2}'))


@pytest.mark.parametrize(
    ("value", "place", "first", "second"),
    [
        ({1: "a", "1": "b"}, "payload", "1", "'1'"),
        ({"null": 0, None: 1}, "payload", "'null'", "None"),
        ({"a": [{"true": 0, True: 1}]}, "payload['a'][0]", "'true'", "True"),
        ([(0, {1.5: 0, "1.5": 1})], "payload[0][1]", "1.5", "'1.5'"),
    ],
)
def test_keys_that_are_the_same_in_json_are_refused_by_their_names(
    value: Any, place: str, first: str, second: str
) -> None:
    expected = (
        f"{place} has the keys {first} and {second}, which are the same in JSON: only one of their values could be kept"
    )

    with pytest.raises(InvalidMessage) as raised:
        jsonb.encode(value)

    assert str(raised.value) == expected


@pytest.mark.parametrize(
    "value", [{1: "a", "2": "b"}, {"a": {None: 1, "1": 2, 2: 3}}, {1: "{", 2: "{"}, "{{", [{}, {}]]
)
def test_keys_that_are_no_strings_are_written_as_json_does(value: Any) -> None:
    assert json.loads(jsonb.encode(value)) == json.loads(json.dumps(value))


@pytest.mark.parametrize("place", ["alone", "in a list", "as a key", "above equal keys"])
def test_an_integer_that_is_too_long_is_named_wherever_it_is(place: str) -> None:
    long = 10**5_000
    value = {
        "alone": long,
        "in a list": {"a": [long]},
        "as a key": {long: 1},
        "above equal keys": {long: {1: 2, "1": 3}},
    }[place]

    with pytest.raises(InvalidMessage, match="an integer of more than 4,300 digits"):
        jsonb.encode(value)
