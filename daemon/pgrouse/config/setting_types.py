"""The types of policy settings, and the two keywords that each of them accepts.

They are whole numbers, rates, switches, jitters and JSON Schemas.
"""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, core_schema

from pgrouse.config.policy.payload_schema import SchemaUnusable, compile_schema
from pgrouse.errors import ConfigError

# A clock cannot keep a slower rate.
MIN_RATE = 0.000001


class Keyword(Enum):
    """The words that a setting accepts instead of a value."""

    INHERIT = "inherit"  # the value of the defaults
    NONE = "none"  # no limit


class TakesKeywords:
    """Lets a setting take the keywords."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Look for a keyword first: archive_success has a value that is also called none."""
        return core_schema.no_info_wrap_validator_function(
            _read,
            handler(source),
            serialization=core_schema.wrap_serializer_function_ser_schema(_write, schema=handler(source)),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the value or the keywords."""
        return {"anyOf": [handler(schema), {"enum": [each.value for each in Keyword]}]}


class TakesKind:
    """Allows a setting that is a table to be given as its `kind`: `backoff = "linear"`."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read a kind as a table that has only this key."""
        return core_schema.no_info_before_validator_function(self._to_table, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the table or the kinds."""
        return {"anyOf": [handler(schema), {"enum": list(self._kinds)}]}

    def _to_table(self, value: Any) -> Any:
        return {"kind": value} if value in self._kinds else value


def _read(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, Keyword) or value == Keyword.INHERIT.value:
        return Keyword(value)
    try:
        return handler(value)
    except ValueError:
        if value == Keyword.NONE.value:
            return Keyword.NONE
        raise


def _write(value: Any, handler: SerializerFunctionWrapHandler) -> Any:
    return value.value if isinstance(value, Keyword) else handler(value)


def _check_rate(value: float) -> float:
    if 0 < value < MIN_RATE:
        raise ValueError(f"must be at least {MIN_RATE:f}, or 0 for no limit, found {value!r}")
    return value


def _read_jitter(value: Any) -> float | str:
    """Read a jitter: "full", or the part of the delay by which it may vary."""
    try:
        share = "full" if value == "full" else float(value)
    except (TypeError, ValueError):
        share = -1.0
    if isinstance(value, bool) or (share != "full" and not 0 <= float(share) <= 1):
        raise ValueError(f'expected "full" or a number from 0 to 1, found {value!r}')
    return share


def _read_schema(value: Any, info: ValidationInfo) -> Any:
    """Read a JSON Schema, and check that it can be used.

    It is given directly, or as `@FILE` relative to the folder of the validation's context.
    """
    if isinstance(value, str) and value.startswith("@"):
        folder = Path((info.context or {}).get("folder", ""))
        value = _read_json(folder / value[1:])
    if not isinstance(value, dict | bool):
        raise ValueError(  # noqa: TRY004
            f'expected a JSON Schema: a table, true, or "@FILE" with one, found {value!r:.80}'
        )
    try:
        compile_schema(value)
    except (SchemaUnusable, ConfigError) as error:
        # The caller that reports this names the setting.
        raise ValueError(str(error).removeprefix("payload_schema: ")) from None
    return value


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): name a file with a JSON Schema") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from None


Count = Annotated[int, Field(ge=0, le=2**31 - 1), TakesKeywords()]
Rate = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False), AfterValidator(_check_rate), TakesKeywords()]
Switch = Annotated[bool, TakesKeywords()]
JITTER = {"anyOf": [{"const": "full"}, {"type": "number", "minimum": 0, "maximum": 1}]}
Jitter = Annotated[float | str, BeforeValidator(_read_jitter), WithJsonSchema(JITTER)]
JsonSchema = Annotated[Any, BeforeValidator(_read_schema), TakesKeywords()]
