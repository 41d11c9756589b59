"""Checks whether the payload schemas of topics can be used here."""

from __future__ import annotations

import json
from collections.abc import Iterator

from pgrouse.client.call import run
from pgrouse.client.queries.topic import payload_schemas
from pgrouse.config.policy.payload_schema import SchemaUnusable, compile_schema
from pgrouse.doctor.finding import Finding, fail, ok
from pgrouse.doctor.target import DoctorTarget
from pgrouse.errors import ConfigError

CODE = "payload_schemas"


def check(target: DoctorTarget) -> Iterator[Finding]:
    """Report schemas that cannot be used, and a missing package."""
    with target.reading() as conn:
        schemas = run(conn, payload_schemas())
    found = [problem for topic, text in schemas if (problem := _problem(topic, text))]
    yield from found or [ok(CODE, f"{len(schemas)} topics have a payload_schema" if schemas else "no topic has one")]


def _problem(topic: str, text: str) -> Finding | None:
    try:
        compile_schema(json.loads(text))
    except SchemaUnusable as error:
        return fail(
            CODE, f"payloads of {topic} are not checked: {error}", f"pgrouse topic set {topic} payload_schema=@FILE"
        )
    except ConfigError as error:
        return fail(
            CODE, f"payloads of {topic} cannot be checked here: {error}", "install it where daemons and publishers run"
        )
    return None
