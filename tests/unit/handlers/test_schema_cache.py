"""The daemon's copy of the topics' schemas."""

from __future__ import annotations

from collections.abc import Callable

from structlog.testing import LogCapture

from pgrouse.client.message import Message
from pgrouse.worker.execution.schema_cache import ERROR_BYTES, SchemaCache

Claimed = Callable[..., Message]

NUMBER = '{"type": "number"}'


def of(*rows: tuple[str, str]) -> SchemaCache:
    schemas = SchemaCache()
    schemas.update(rows)
    return schemas


def test_a_payload_that_python_cannot_hold_is_invalid(claimed: Claimed) -> None:
    schemas = of(("job", NUMBER))

    for hostile in ("[" * 10_000 + "]" * 10_000, "{not json"):
        assert (schemas.violation(claimed(payload=hostile)) or "").startswith("payload_schema: it cannot be decoded: ")


def test_a_long_list_of_problems_is_cut_at_its_end(claimed: Claimed) -> None:
    schemas = of(("job", '{"items": {"enum": ["' + "é" * 400 + '"]}}'))

    error = schemas.violation(claimed(payload=str(list(range(30)))))

    assert error is not None
    assert error.startswith("payload_schema: 0: ")
    assert 7000 < len(error.encode()) <= ERROR_BYTES


def test_only_a_changed_schema_is_compiled_and_logged_again(claimed: Claimed, logged: LogCapture) -> None:
    schemas = of(("good", NUMBER), ("bad", '{"type": 5}'))
    before = dict(schemas._schemas)

    schemas.update([("good", NUMBER), ("bad", '{"type": 5}'), ("new", NUMBER)])

    assert schemas._schemas["good"] is before["good"]
    assert schemas.violation(claimed("bad", payload="1")) is None, "a schema that cannot be used refuses nothing"
    assert [event["topic"] for event in logged.entries] == ["bad"]
