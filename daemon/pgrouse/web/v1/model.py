"""What the bodies of `/v1` have in common: their types, and what every one of them may not be."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from pgrouse import jsonb

from pgrouse.config import duration
from pgrouse.jsonb import Raw
from pgrouse.publishing.new_message import FIRST, LAST
from pgrouse.printable import printable

MOST = 1000
# No body has as many.
MOST_MEMBERS = 100
S, DAY = timedelta(seconds=1), timedelta(days=1)
BIGGEST = 2**63 - 1


class Body(BaseModel):
    """A body: no member but its own."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _has_few(cls, given: Any) -> Any:
        # A fault for each of a million members would be made before the first is told.
        if isinstance(given, dict) and len(given) > MOST_MEMBERS:
            raise ValueError(f"has {len(given):,} members: take out those that are not described")
        return given


def example(**members: Any) -> ConfigDict:
    """Return the configuration of a body that the description shows an example of."""
    return ConfigDict(json_schema_extra={"examples": [members]})


class Shape(BaseModel):
    """What an answer looks like; answers may get further members."""

    model_config = ConfigDict(use_attribute_docstrings=True)


def _plain(text: str) -> str:
    if "\x00" in text or any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError("has a character that PostgreSQL cannot store")
    return text


class Encrypted(Shape):
    """What is known of contents that are encrypted."""

    key: str
    """The name of the key."""
    bytes: int
    """How large it is."""


def _bounded(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError('needs a time zone, as in "2027-01-31T08:00:00+01:00"')
    if not FIRST <= at <= LAST:
        raise ValueError(f"must be between {FIRST.year} and {LAST.year}")
    return at


def _raw(value: Any, about: ValidationInfo) -> Raw:
    """Write it as the database gets it: here, since large bodies are validated beside the event loop."""
    return value if isinstance(value, Raw) else Raw(jsonb.encode(value, about.field_name or "value"))


def _raw_object(value: Any, about: ValidationInfo) -> Raw:
    if not isinstance(value, dict | Raw):
        raise ValueError("must be an object")  # noqa: TRY004 - pydantic gathers these
    return _raw(value, about)


def _bytes(text: Any) -> bytes:
    if not isinstance(text, str):
        raise ValueError("must be text in Base64")  # noqa: TRY004 - pydantic gathers these
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("is no Base64") from None


Id = Annotated[int, Field(ge=1, le=BIGGEST, strict=True)]
PathId = Annotated[int, Field(ge=1, le=BIGGEST)]
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$", examples=["orders.created"])]
AnyTopic = Annotated[str, Field(pattern=r"^(\*|[A-Za-z0-9][A-Za-z0-9._:-]{0,199})$", examples=["orders.created"])]
Label = Annotated[
    str,
    Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$"),
    AfterValidator(_plain),
    AfterValidator(printable),
]
Text = Annotated[str, Field(max_length=8000), AfterValidator(_plain)]
Moment = Annotated[datetime, AfterValidator(_bounded)]
Base64 = Annotated[bytes, BeforeValidator(_bytes), WithJsonSchema({"type": "string", "contentEncoding": "base64"})]
Seconds = Annotated[
    timedelta,
    BeforeValidator(duration.parse),
    PlainSerializer(lambda value: value.total_seconds()),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": f"^{duration.PATTERN}$", "maxLength": 30},
            ],
            "description": 'A duration: seconds, or text like "90s" and "1h30m".',
            "examples": ["5m"],
        }
    ),
]
Wait = Annotated[Seconds, duration.between(0 * S, 3650 * DAY)]
Lock = Annotated[Seconds, duration.between(0.1 * S, 7 * DAY)]
Json = Annotated[Any, AfterValidator(_raw)]
JsonObject = Annotated[
    Raw, BeforeValidator(_raw_object), WithJsonSchema({"type": "object", "additionalProperties": True})
]
Limit = Annotated[int, Field(ge=1, le=MOST)]
Cursor = Annotated[str, Field(max_length=1000, pattern=r"^[A-Za-z0-9_-]*$")]


class Problem(Shape):
    """RFC 9457: what is wrong."""

    title: str
    status: int
    code: str
    """A short word for programs."""
    detail: str
    """What is wrong, where, and the mend."""


PROBLEM: dict[str, Any] = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
REFUSED = (400, 401, 403, 404, 405, 408, 409, 413, 415, 421, 422, 429, 503)
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": "Refused; see `code` and `detail`.", "content": PROBLEM} for status in REFUSED
}
