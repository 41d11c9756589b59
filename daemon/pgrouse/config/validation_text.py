"""What an error of pydantic says, in words of our own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from pgrouse.values.topic_pattern import NAME_OR_DEFAULTS, NAME_OR_PATTERN

TOPIC = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$"
NO_TOPIC = "is no topic name: 1 to 200 of A-Z a-z 0-9 . _ : - and a letter or digit first"
NO_PATTERN = f"{NO_TOPIC}; a pattern ends with .* or .**"
PATTERNS = {TOPIC: NO_TOPIC, NAME_OR_PATTERN: NO_PATTERN, NAME_OR_DEFAULTS: NO_PATTERN}
WHOLE, NUMBER, SWITCH, TEXT = "a whole number", "a number", "true or false", "text in quotes"
MOMENT = 'must be a time in ISO 8601, as in "2027-01-31T08:00:00+01:00"'
# By pydantic's names of errors.
EXPECTED = {
    **dict.fromkeys(("int_type", "int_from_float", "int_parsing", "int_parsing_size"), f"expected {WHOLE}"),
    **dict.fromkeys(("float_type", "float_parsing", "finite_number"), f"expected {NUMBER}"),
    **dict.fromkeys(("bool_type", "bool_parsing"), f"expected {SWITCH}"),
    "string_type": f"expected {TEXT}",
    "list_type": 'expected a list like ["a", "b"]',
    **dict.fromkeys(("model_type", "dict_type", "model_attributes_type"), "expected an object"),
    **dict.fromkeys(("literal_error", "enum"), "expected {expected}"),
    **dict.fromkeys(("uuid_type", "uuid_parsing"), "expected an id like 01890a5d-ac96-774b-bcce-b302099a8057"),
    **dict.fromkeys(("datetime_type", "datetime_parsing", "datetime_from_date_parsing"), MOMENT),
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "string_too_short": "must have at least {min_length} characters",
    "string_too_long": "must have at most {max_length} characters",
    "too_short": "must have at least {min_length} items, found {actual_length}",
    "too_long": "must have at most {max_length} items",
    "string_pattern_mismatch": "must match {pattern}",
    "missing": "is missing",
}


def describe(error: Mapping[str, Any], known: Sequence[str] = (), noun: str = "member") -> str:
    """Return what is wrong with a value.

    Args:
        error: as `ValidationError.errors` has it, with its context.
        known: the names that are possible at its place.
        noun: what one of them is called.
    """
    kind, context = error["type"], error.get("ctx", {})
    if kind == "value_error":
        return str(context["error"])
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1])[:100], known, n=1)
        return f"there is no such {noun}" + (f"; did you mean {near[0]!r}?" if near else ": take it out")
    if kind == "string_pattern_mismatch" and context["pattern"] in PATTERNS:
        return PATTERNS[context["pattern"]]
    return EXPECTED.get(kind, f"cannot be used ({kind})").format(**context)
