"""The JSON Schema of a topic's payloads: compiles it, and lists what in a payload does not match.

Nothing is fetched: a `$ref` can only refer to the schema itself. `format` is not checked. Patterns have the syntax of
Rust's regex (as RE2: no look-around, no back-references), whose time is linear in the length of the text. A problem
names the place and the rule, never the value: the contents of a payload must not get into a log, or into an archive
that analysts read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from pgrouse.errors import ConfigError, PgrouseError

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

# The text that a problem shows instead of the value.
MASK = "the value"
# For a longer payload only the first problem is reported: a list with a million entries that are all wrong would take
# seconds.
LISTED_CHARS = 16_384
PROBLEMS = 20
PROBLEM_CHARS = 300
NOT_INSTALLED = "payload_schema: it needs jsonschema-rs, which is not installed: pip install 'pgrouse[schemas]'"
NO_JSON = "(whole): it has a body instead of a payload, and the topic's payload_schema wants JSON"


class SchemaUnusable(PgrouseError, ValueError):
    """This is not a JSON Schema, or it cannot be used here."""


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """A schema that is ready to check payloads; `compile_schema` creates it.

    Attributes:
        validator: checks a payload; None = the schema permits everything: `true` or `{}`, with which a topic removes
            the schema of the defaults.
    """

    validator: Validator | None

    def problems(self, payload: str | None) -> list[str]:
        """Return the problems of a payload, at most 20; none if it matches.

        Args:
            payload: JSON text; None = a message with a body.

        Raises:
            ValueError: it is not JSON, or Python cannot hold it.
        """
        if payload is None:
            return [] if self.validator is None else [NO_JSON]
        value = from_json(payload)
        if self.validator is None or self.validator.is_valid(value):
            return []
        if len(payload) > LISTED_CHARS:
            return [_first_problem(self.validator, value)]
        found = list(self.validator.iter_errors(value))
        more = [f"and {len(found) - PROBLEMS} more"] if len(found) > PROBLEMS else []
        return [_describe(each) for each in found[:PROBLEMS]] + more


def _first_problem(validator: Validator, value: Any) -> str:
    from jsonschema_rs import ValidationError  # noqa: PLC0415 - extra schemas

    try:
        validator.validate(value)
    except ValidationError as error:
        return f"{_describe(error)} (the payload is large: this is the first problem)"
    return "it does not fit"  # not reached: it is not valid


def compile_schema(schema: Any) -> PayloadSchema:
    """Return a schema that is ready to check payloads.

    Args:
        schema: the value of `messages.topic.payload_schema`; `$schema` names its draft, by default 2020-12.

    Raises:
        SchemaUnusable: it is not a schema, refers to something outside, or has a pattern that cannot be used; the text
            says where.
        ConfigError: the extra `schemas` is not installed, and the schema requires something.
    """
    if not isinstance(schema, dict | bool):  # the library would read a string as JSON
        raise SchemaUnusable(f"payload_schema: a {type(schema).__name__} is not a JSON Schema: use an object")
    if schema is True or schema == {}:
        return PayloadSchema(None)
    try:
        import jsonschema_rs  # noqa: PLC0415 - extra schemas
    except ModuleNotFoundError:
        raise ConfigError(NOT_INSTALLED) from None
    try:
        validator = jsonschema_rs.validator_for(
            schema, validate_formats=False, offline=True, pattern_options=jsonschema_rs.RegexOptions(), mask=MASK
        )
    except jsonschema_rs.ValidationError as error:
        raise SchemaUnusable(f"payload_schema: {_describe(error)}{_fix(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaUnusable(f"payload_schema: {error}") from None
    return PayloadSchema(validator)


def _describe(error: ValidationError) -> str:
    text = f"{'.'.join(map(str, error.instance_path)) or '(whole)'}: {error.message}"
    return text if len(text) <= PROBLEM_CHARS else text[: PROBLEM_CHARS - 3] + "..."


def _fix(error: ValidationError) -> str:
    if "pattern" in error.instance_path or "patternProperties" in error.instance_path:
        return "; patterns are written as for RE2: no look-around and no back-references"
    if "Retrieval is disabled" in error.message:
        return "; nothing is fetched: put what it refers to into its own $defs"
    return ""
