"""The JSON Schema of payloads: valid payloads, the problems of others, and what a schema may not do."""

from __future__ import annotations

import json
import socket
import sys
import time
from typing import Any

import pytest

from pgrouse.config.policy.payload_schema import PROBLEMS, SchemaUnusable, compile_schema
from pgrouse.errors import ConfigError

ORDER = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": {"type": "string"}}},
    "required": ["id"],
    "additionalProperties": False,
}


def problems(schema: Any, payload: Any) -> list[str]:
    return compile_schema(schema).problems(json.dumps(payload))


def test_a_long_problem_is_cut_in_characters_of_every_encoding() -> None:
    (problem,) = problems({"properties": {"x" * 500: {"type": "string"}}}, {"x" * 500: 1})

    assert len(problem) == 300
    assert problem.encode("ascii").endswith(b"x...")


def test_every_problem_has_its_location_and_never_a_value() -> None:
    found = problems(ORDER, {"id": "secret", "lines": ["fine", 4711]})

    assert [each.partition(":")[0] for each in found] == ["id", "lines.1"]
    assert not any("secret" in each or "4711" in each for each in found)


def test_missing_and_additional_properties_are_named() -> None:
    assert sorted(problems(ORDER, {"price": 1})) == [
        '(whole): "id" is a required property',
        "(whole): Additional properties are not allowed ('price' was unexpected)",
    ]


def test_at_most_twenty_problems_are_listed_and_the_others_counted() -> None:
    found = problems({"items": {"type": "string"}}, list(range(50)))

    assert len(found) == PROBLEMS + 1
    assert found[-1] == "and 30 more"


def test_only_the_first_problem_of_a_large_payload_is_reported() -> None:
    began = time.perf_counter()

    (problem,) = problems({"items": {"type": "string"}}, list(range(300_000)))

    assert problem.startswith("0: ")
    assert problem.endswith("(the payload is large: this is the first problem)")
    assert time.perf_counter() - began < 60, "all of them would take minutes"


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(a|a)*$", "(.*a){20}"])
def test_the_time_of_a_pattern_is_proportional_to_the_text(pattern: str) -> None:
    schema = compile_schema({"pattern": pattern, "patternProperties": {pattern: {}}, "unevaluatedProperties": False})
    hostile = "a" * 20_000 + "!"
    began = time.perf_counter()

    schema.problems(json.dumps(hostile))
    schema.problems(json.dumps({hostile: 1}))

    assert time.perf_counter() - began < 60, "else it would take longer than the world has"


def test_formats_are_not_checked() -> None:
    assert problems({"format": "email"}, "no address") == []


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"type": "nonsense"}, "payload_schema: type: "),
        ({"properties": {"a": {"minimum": "1"}}}, "payload_schema: properties.a.minimum: "),
        ([1], "payload_schema: a list is not a JSON Schema: use an object"),
        ("{}", "payload_schema: a str is not a JSON Schema: use an object"),
        ({"$ref": "#/$defs/nowhere"}, "payload_schema: (whole): Pointer '/$defs/nowhere' does not exist"),
        ({"$schema": "http://example.com/mine"}, "payload_schema: (whole): Unknown meta-schema"),
    ],
)
def test_an_invalid_schema_is_refused_with_the_location(schema: Any, problem: str) -> None:
    with pytest.raises(SchemaUnusable) as caught:
        compile_schema(schema)

    assert str(caught.value).startswith(problem)


@pytest.mark.parametrize("pattern", ["(?=a)", r"(a)\1", "["])
def test_a_pattern_without_linear_time_is_refused_with_the_fix(pattern: str) -> None:
    for schema in ({"pattern": pattern}, {"patternProperties": {pattern: {}}}):
        with pytest.raises(SchemaUnusable, match="no look-around and no back-references"):
            compile_schema(schema)


def test_nothing_is_ever_fetched() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        address = f"http://127.0.0.1:{server.getsockname()[1]}/schema.json"

        with pytest.raises(SchemaUnusable, match=r"nothing is fetched: put what it refers to into its own \$defs"):
            compile_schema({"$ref": address})

        with pytest.raises(TimeoutError):
            server.accept()


def test_no_file_is_read() -> None:
    with pytest.raises(SchemaUnusable, match="nothing is fetched"):
        compile_schema({"$ref": "file:///etc/hostname"})


def test_a_schema_without_the_package_raises_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)

    with pytest.raises(ConfigError, match=r"pip install 'pgrouse\[schemas\]'"):
        compile_schema({"type": "object"})


@pytest.mark.parametrize("schema", [True, {}])
def test_an_empty_schema_needs_no_package(schema: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema_rs", None)

    assert compile_schema(schema).problems('{"a": 1}') == []
