"""What validation found in a payload, a result or an output, as a text without the values."""

from __future__ import annotations

from typing import get_args

import pydantic
from pydantic_core import core_schema

# Kinds of validation errors whose texts quote the value, or come from a user's validators, which may quote it. Custom
# kinds may quote it too.
ERRORS_WITH_VALUES = frozenset(
    {"value_error", "assertion_error", "union_tag_invalid", "get_attribute_error", "timezone_offset"}
)
ERRORS_WITHOUT_VALUES = frozenset(get_args(core_schema.ErrorType)) - ERRORS_WITH_VALUES


def list_problems(error: pydantic.ValidationError) -> str:
    """Return the errors without the values.

    The contents of a payload must not get into an archive that analysts read.
    """
    each = (
        f"{'.'.join(map(str, e['loc'])) or '(whole)'}: {e['msg'] if e['type'] in ERRORS_WITHOUT_VALUES else e['type']}"
        for e in error.errors(include_url=False, include_input=False)
    )
    return "; ".join(each)
