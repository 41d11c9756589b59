"""Lines of JSON keep their text."""

from __future__ import annotations

import pytest

from pyspark_pgrouse.publish.lines import fields, split
from tests.pipeline.publishing import batch


def test_values_keep_their_text_and_strings_their_content() -> None:
    line = (
        ' { "topic" : "a\\u00e4\\"", "payload":{"n": 1.10, "s": "}\\"{"} ,"priority":3,"key":null, "headers" : '
        "[1 , 2] }\r"
    )

    assert fields(line) == {
        "topic": 'aä"',
        "payload": '{"n": 1.10, "s": "}\\"{"}',
        "priority": "3",
        "key": None,
        "headers": "[1 , 2]",
    }


@pytest.mark.parametrize("line", ["{}", " { } "])
def test_an_object_may_be_empty(line: str) -> None:
    assert fields(line) == {}


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[]",
        "1",
        "{",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,',
        '{"a":1,}',
        '{"a" 1}',
        "{'a':1}",
        '{"a":1} x',
        '{"a":1}{}',
        "{" * 9,
    ],
)
def test_a_line_that_is_not_an_object_is_unchanged(line: str) -> None:
    (made,) = split(["a"], iter([batch(value=[line])]))

    assert made.to_pylist() == [{"a": None, "_corrupt_record": line}]
