"""Types and base classes that the request and response bodies of `/v1` share."""

from __future__ import annotations

import base64
import binascii
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Self, get_args, get_type_hints

from fastapi import Query
from fastapi.exceptions import RequestValidationError
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    create_model,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from pgrouse.config import duration
from pgrouse.config.described_model import DescribedModel
from pgrouse.config.validation_text import MOMENT, TOPIC
from pgrouse.publishing.new_message import FIRST, LAST
from pgrouse.values import jsonb
from pgrouse.values.jsonb import Raw
from pgrouse.values.printable import printable
from pgrouse.values.topic_pattern import MAX_BYTES, NAME_OR_DEFAULTS, NAME_OR_PATTERN

MAX_ITEMS = 1000
# More than any body has.
MAX_MEMBERS = 100
S, DAY = timedelta(seconds=1), timedelta(days=1)
MAX_ID = 2**63 - 1
DATE_AND_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt ]", re.ASCII)


def _of_json(schema: Any, *, inside: bool = False) -> Any:
    """Let no text stand for a number, and no number for a switch. To JSON Schema, 36.0 is an integer."""
    match schema:
        case {"type": "int"}:
            return core_schema.no_info_before_validator_function(whole, {**schema, "strict": True})
        case {"type": "float" | "bool"}:
            return {**schema, "strict": True}
        case {"type": "model"} if inside:  # it has a rule of its own
            return schema
        case dict():
            within = inside or schema.get("type") == "model"
            kept = {name: schema[name] for name in ("metadata", "default", "config") if name in schema}
            return {name: _of_json(inner, inside=within) for name, inner in schema.items()} | kept
        case list():
            return [_of_json(each, inside=inside) for each in schema]
    return schema


def whole(value: Any) -> Any:
    """Return a number without a fraction as an integer, and every other value as it is."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class RequestModel(DescribedModel):
    """A request body. Unknown members are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Take of numbers and switches only what JSON calls so."""
        schema: CoreSchema = _of_json(handler(source))
        return schema

    @model_validator(mode="before")
    @classmethod
    def _check_member_count(cls, given: Any) -> Any:
        # Pydantic would build one error for each of a million unknown members.
        if isinstance(given, dict) and len(given) > MAX_MEMBERS:
            raise ValueError(f"has {len(given):,} members: take out those that are not described")
        return given


@dataclass(frozen=True)
class Rule:
    """A rule about several members of a body.

    Attributes:
        schema: the rule in JSON Schema.
        error: what is wrong with a body that breaks it; None: nothing.
    """

    schema: dict[str, Any]
    error: Callable[[Any], str | None]


class RuledModel(RequestModel):
    """A request body with rules about several of its members."""

    rules: ClassVar[tuple[Rule, ...]]

    @model_validator(mode="after")
    def _keeps_rules(self) -> Self:
        for rule in self.rules:
            if (error := rule.error(self)) is not None:
                raise ValueError(error)
        return self

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the rules."""
        described = super().__get_pydantic_json_schema__(schema, handler)
        handler.resolve_ref_schema(described)["allOf"] = [rule.schema for rule in cls.rules]
        return described


def given(*names: str) -> dict[str, Any]:
    """Return the JSON Schema of a body that has all of these members, and none of them as null."""
    return {"required": [*names], "properties": {name: {"not": {"type": "null"}} for name in names}}


def _number_given(body: Any, names: Collection[str]) -> int:
    return sum(getattr(body, name) is not None for name in names)


def exactly_one(*names: str) -> Rule:
    """Return the rule that one of these members is given, and no other of them."""
    text = f"give either {' or '.join(names)}"
    return Rule({"oneOf": [*map(given, names)]}, lambda body: None if _number_given(body, names) == 1 else text)


def at_most_one(*names: str) -> Rule:
    """Return the rule that not all of these members are given."""
    text = f"{' and '.join(names)} were both given: use one of them"
    return Rule({"not": given(*names)}, lambda body: text if _number_given(body, names) > 1 else None)


def at_least_one(*names: str) -> Rule:
    """Return the rule that one of these members is given."""
    text = f"give {', '.join(names[:-1])} or {names[-1]}"
    return Rule({"anyOf": [*map(given, names)]}, lambda body: None if _number_given(body, names) else text)


def invalid_body(kind: Any, errors: Iterable[Mapping[str, Any]]) -> RequestValidationError:
    """Return the error of a body of this type; an unknown member gets the names that are known at its place."""
    return RequestValidationError([{**each, "known": _known_members(kind, each["loc"][1:-1])} for each in errors])


def _known_members(kind: Any, place: Iterable[str | int]) -> list[str]:
    models = list(_models(kind))
    for name in place:
        if isinstance(name, str):
            fields = [model.model_fields[name] for model in models if name in model.model_fields]
            models = [model for field in fields for model in _models(field.annotation)]
    return [name for model in models for name in model.model_fields]


def _models(kind: Any) -> Iterator[type[BaseModel]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind
    for each in get_args(kind):
        yield from _models(each)


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


def plain(text: str) -> str:
    """Return a text that PostgreSQL can store."""
    if "\x00" in text or any("\ud800" <= each <= "\udfff" for each in text):
        raise ValueError("has a character that PostgreSQL cannot store")
    return text


class Removal(ResponseModel):
    """What was removed."""

    removed: str


class EncryptedContent(ResponseModel):
    """What is known about encrypted contents."""

    model_config = example(key="orders-2027", bytes=120)

    key: str
    """The name of the key."""
    bytes: int
    """The size of the encrypted contents in bytes."""


def _moment(value: Any) -> Any:
    # pydantic also takes seconds since 1970.
    if isinstance(value, str) and DATE_AND_TIME.match(value):
        return value
    raise ValueError(MOMENT)


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


# The value of a member that may be missing, and is not null.
MAYBE: Any = Field(default=None)
Id = Annotated[int, Field(ge=1, le=MAX_ID)]
PathId = Annotated[int, Field(ge=1, le=MAX_ID)]
Topic = Annotated[str, Field(pattern=TOPIC, examples=["orders.created"])]
TopicOrPattern = Annotated[str, Field(pattern=NAME_OR_PATTERN, max_length=MAX_BYTES, examples=["orders.created"])]
AnyTopic = Annotated[str, Field(pattern=NAME_OR_DEFAULTS, max_length=MAX_BYTES, examples=["orders.created"])]
Label = Annotated[
    str,
    Field(min_length=1, max_length=200, json_schema_extra={"pattern": r"^[^\x00-\x1f\x7f-\x9f\xad]+$"}),
    AfterValidator(plain),
    AfterValidator(printable),
]
# The name of a sink, a token or an export.
FleetName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:@-]{0,199}$", examples=["ops"])]
Text = Annotated[str, Field(max_length=8000, json_schema_extra={"pattern": r"^[^\x00]*$"}), AfterValidator(plain)]
Timestamp = Annotated[datetime, BeforeValidator(_moment), AfterValidator(_bounded)]
# A part of a response that is JSON text already.
TimestampText = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
Base64 = Annotated[
    bytes,
    BeforeValidator(_bytes),
    WithJsonSchema({"type": "string", "contentEncoding": "base64", "pattern": BASE64}),
]
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
OwnTimeout = Annotated[Seconds, duration.between(0.001 * S, 30 * DAY)]
OwnRetention = Annotated[Seconds, duration.between(3600 * S, 36_500 * DAY)]
Lock = Annotated[Seconds, duration.between(0.1 * S, 7 * DAY)]
Json = Annotated[Any, AfterValidator(_raw)]
JsonObject = Annotated[
    Raw, BeforeValidator(_raw_object), WithJsonSchema({"type": "object", "additionalProperties": True})
]
Limit = Annotated[int, Field(ge=1, le=MAX_ITEMS)]
Cursor = Annotated[str, Field(max_length=1000, pattern=r"^[A-Za-z0-9_-]*$")]
# The parameter of a list; the module that decodes it has its name.
CursorQuery = Annotated[Cursor | None, Query(alias="cursor")]


class ProblemError(ResponseModel):
    """One error of an invalid request."""

    model_config = example(location="body.priority", message="must be at most 9")

    location: str
    """Where it is in the request."""
    message: str
    """What is wrong there."""


class ProblemDetails(ResponseModel):
    """An error (RFC 9457)."""

    title: str
    status: int
    """The status of the response."""
    code: str
    """A short machine-readable code."""
    detail: str
    """What is wrong, where, and how to fix it."""
    errors: list[ProblemError] = MAYBE
    """All errors of an invalid request."""
    problems: list[str] = MAYBE
    """What a payload breaks of its topic's schema."""
    sqlstate: str = MAYBE
    """The SQLSTATE of an error of the database."""
    id: int = MAYBE
    """The message that it is about."""
    needs: str = MAYBE
    """The role that the token lacks."""
    cancelled: bool = MAYBE
    """Whether the message whose lock was lost was cancelled."""


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
