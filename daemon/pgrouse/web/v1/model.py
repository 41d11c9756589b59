"""Types and base classes that the request and response bodies of `/v1` share."""

from __future__ import annotations

import base64
import binascii
import inspect
import re
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Annotated, Any, get_type_hints

from fastapi import Query
from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    model_validator,
)

from pgrouse import jsonb
from pgrouse.config import duration
from pgrouse.config.described_model import DescribedModel
from pgrouse.jsonb import Raw
from pgrouse.printable import printable
from pgrouse.publishing.new_message import FIRST, LAST
from pgrouse.topic_pattern import MAX_BYTES, NAME_OR_DEFAULTS, NAME_OR_PATTERN

MAX_ITEMS = 1000
# More than any body has.
MAX_MEMBERS = 100
S, DAY = timedelta(seconds=1), timedelta(days=1)
MAX_ID = 2**63 - 1


class RequestModel(DescribedModel):
    """A request body. Unknown members are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _check_member_count(cls, given: Any) -> Any:
        # Pydantic would build one error for each of a million unknown members.
        if isinstance(given, dict) and len(given) > MAX_MEMBERS:
            raise ValueError(f"has {len(given):,} members: take out those that are not described")
        return given


def example(**members: Any) -> ConfigDict:
    """Return the model configuration with an example for the OpenAPI description."""
    return ConfigDict(json_schema_extra={"examples": [members]})


class ResponseModel(DescribedModel):
    """A response body. Later versions may add members."""

    @classmethod
    def of(cls, row: Any, **more: Any) -> dict[str, Any]:
        """Return the members that are columns of a row, and more. JSON of the database stays text."""
        return {name: more[name] if name in more else _column(row, name) for name in cls.model_fields}


def _column(row: Any, name: str) -> Any:
    text = getattr(row, f"{name}_json", row)
    return getattr(row, name) if text is row else text and Raw(text)


def _plain(text: str) -> str:
    if "\x00" in text or any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError("has a character that PostgreSQL cannot store")
    return text


class EncryptedContent(ResponseModel):
    """What is known about encrypted contents."""

    model_config = example(key="orders-2027", bytes=120)

    key: str
    """The name of the key."""
    bytes: int
    """The size of the encrypted contents in bytes."""


def _bounded(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError('needs a time zone, as in "2027-01-31T08:00:00+01:00"')
    if not FIRST <= at <= LAST:
        raise ValueError(f"must be between {FIRST.year} and {LAST.year}")
    return at


def _raw(value: Any, about: ValidationInfo) -> Raw:
    """Encode a value as JSON text for the database.

    Done during validation, because large bodies are validated in a thread.
    """
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


Id = Annotated[int, Field(ge=1, le=MAX_ID, strict=True)]
PathId = Annotated[int, Field(ge=1, le=MAX_ID)]
Topic = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,199}$", examples=["orders.created"])]
TopicOrPattern = Annotated[str, Field(pattern=NAME_OR_PATTERN, max_length=MAX_BYTES, examples=["orders.created"])]
AnyTopic = Annotated[str, Field(pattern=NAME_OR_DEFAULTS, max_length=MAX_BYTES, examples=["orders.created"])]
Label = Annotated[
    str,
    Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$"),
    AfterValidator(_plain),
    AfterValidator(printable),
]
Text = Annotated[str, Field(max_length=8000), AfterValidator(_plain)]
Timestamp = Annotated[datetime, AfterValidator(_bounded)]
# A part of a response that is JSON text already.
TimestampText = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
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
Limit = Annotated[int, Field(ge=1, le=MAX_ITEMS)]
Cursor = Annotated[str, Field(max_length=1000, pattern=r"^[A-Za-z0-9_-]*$")]
# The parameter of a list; the module that decodes it has its name.
CursorQuery = Annotated[Cursor | None, Query(alias="cursor")]


class ProblemDetails(ResponseModel):
    """An error (RFC 9457)."""

    title: str
    status: int
    """The status of the response."""
    code: str
    """A short machine-readable code."""
    detail: str
    """What is wrong, where, and how to fix it."""


JSON_SUFFIX = "_json"
# A line below `Attributes:`, with those that continue it.
ATTRIBUTE = re.compile(r"^    (\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)
# How a response writes values.
WRITTEN: dict[Any, Any] = {
    timedelta: float,
    timedelta | None: float | None,
    bytes | None: str | None,
}


def members_of(
    row: type[Any], *, only: Collection[str] = (), without: Collection[str] = ()
) -> Callable[[type[ResponseModel]], Any]:
    """Add the columns of a row to the members of a response; those that it has itself stay as they are."""

    def add(model: type[ResponseModel]) -> type[ResponseModel]:
        members: dict[str, Any] = {}
        for column, type_ in get_type_hints(row).items():
            name = column.removesuffix(JSON_SUFFIX)
            if name not in without and name not in model.model_fields and (not only or name in only):
                written = Any if column.endswith(JSON_SUFFIX) else WRITTEN.get(type_, type_)
                members[name] = written, Field(description=_meanings(row).get(column))
        made = create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__, **members
        )
        # In the order of the columns.
        names = [column.removesuffix(JSON_SUFFIX) for column in get_type_hints(row)]
        fields = made.model_fields
        made.__pydantic_fields__ = {name: fields[name] for name in dict.fromkeys([*names, *fields]) if name in fields}
        made.model_rebuild(force=True)
        return made

    return add


def _meanings(row: type[Any]) -> dict[str, str]:
    """Return the meanings of columns as the class of a row describes them, and as a reader of JSON calls None."""
    classes = [each for each in reversed(row.__mro__) if each.__doc__]
    texts = {name: text for each in classes for name, text in ATTRIBUTE.findall(inspect.cleandoc(each.__doc__ or ""))}
    return {name: _sentence(" ".join(text.split()).rstrip(".")) for name, text in texts.items()}


def _sentence(text: str) -> str:
    # "on, paused or over" are values.
    begin = text[0] if re.match(r"\S+[,:;]", text) else text[0].upper()
    return re.sub(r"\bNone\b", "null", begin + text[1:]).replace(" =", ":") + "."
