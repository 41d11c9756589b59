"""The JSON Schema of a topic's payloads: compile it, and list what in a payload does not fit.

Nothing is ever fetched: a `$ref` reaches no further than the schema itself. `format` is not checked. Patterns are those of Rust's regex
(RE2 syntax: no look-around, no back-references), whose time grows with the length of the text and no faster. A problem names the place
and the rule, never the value: the contents of a payload must not get into a log, or into an archive that analysts read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from pgrouse.errors import ConfigError, PgrouseError

if TYPE_CHECKING:
    from jsonschema_rs import ValidationError, Validator

# What a problem shows instead of the value.
MASK = "the value"
# For a longer payload only the first problem is reported: a list with a million entries that are all wrong would take seconds.
LISTED_CHARS = 16_384
PROBLEMS = 20
PROBLEM_CHARS = 300
NOT_INSTALLED = "payload_schema: it needs jsonschema-rs, which is not installed: pip install 'pgrouse[schemas]'"
NO_JSON = "(whole): it has a body instead of a payload, and the topic's payload_schema wants JSON"


class SchemaUnusable(PgrouseError, ValueError):
    """This is not a JSON Schema, or one that cannot be used here."""


@dataclass(frozen=True, slots=True)
class PayloadSchema:
    """A schema that is ready to check payloads; `compile_schema` makes one.

    Attributes:
        validator: checks a payload; None = the schema asks for nothing: `true` or `{}`, by which a topic lifts the schema of the defaults.
    """

    validator: Validator | None

    def problems(self, payload: str | None) -> list[str]:
        """Return what does not fit in a payload, at most 20 entries; empty if it fits.

        Args:
            payload: JSON text; None = a message with a body.

        Raises:
            ValueError: it is not JSON, or none that Python can hold.
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
    """Make a schema ready.

    Args:
        schema: what `messages.topic.payload_schema` holds; its draft is what `$schema` says, 2020-12 unless given.

    Raises:
        SchemaUnusable: it is none, refers to something outside, or has a pattern that cannot be used; says where.
        ConfigError: the extra `schemas` is not installed, and the schema asks for something.
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
