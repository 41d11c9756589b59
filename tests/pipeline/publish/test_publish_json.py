"""Columns of any type as JSON."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pyspark_pgrouse.publish.json_text import as_json


@pytest.mark.parametrize(
    ("values", "text"),
    [
        (pa.array([{"a": 1, "b": None}]), '{"a":1,"b":null}'),
        (pa.array([[1.5, None]]), "[1.5,null]"),
        (pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())), '{"k":1}'),
        (pa.array([[(1, "v")]], pa.map_(pa.int64(), pa.string())), '{"1":"v"}'),
        (pa.array([Decimal("12345678901234567890.10")]), "12345678901234567890.10"),
        (pa.array([Decimal("1E+3")]), "1000"),
        (pa.array([9223372036854775807]), "9223372036854775807"),
        (pa.array([True]), "true"),
        (pa.array([b"\x00\x01"]), '"AAE="'),
        (pa.array([date(2026, 1, 2)]), '"2026-01-02"'),
        (pa.array([datetime(2026, 1, 2, 3, tzinfo=UTC)]), '"2026-01-02T03:00:00+00:00"'),
        (pa.array([timedelta(seconds=1.5)]), "1.5"),
        (pa.array([{'"': 'ä"\n\x01'}]), '{"\\"":"ä\\"\\n\\u0001"}'),
        (pa.array([{"a": [{"b": [("k", [1])]}]}],
            pa.struct({"a": pa.list_(pa.struct({"b": pa.map_(pa.string(), pa.list_(pa.int8()))}))})),
            '{"a":[{"b":{"k":[1]}}]}'),
    ],
)  # fmt: skip
def test_a_value_becomes_json(values: pa.Array, text: str) -> None:
    assert as_json(values).to_pylist() == [text]
    json.loads(text)


def test_a_row_without_a_value_has_no_json() -> None:
    assert as_json(pa.array([None, {"a": 1}])).to_pylist() == [None, '{"a":1}']


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_json_does_not_have_is_refused_later(value: float) -> None:
    def refuse(constant: str) -> Any:
        raise ValueError(constant)

    with pytest.raises(ValueError, match=r"NaN|Infinity"):
        json.loads(as_json(pa.array([[value]]))[0].as_py(), parse_constant=refuse)
