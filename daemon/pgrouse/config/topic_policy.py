"""The settings of a topic's policy: what each means, its unit and its bounds. One description for the file, the command line and the docs.

What a table or a command does not name is left as it is. Two keywords stand for values: `inherit` takes the default of topic `*`,
`none` lifts a limit although the default has one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    model_serializer,
)
from pydantic_core import CoreSchema, core_schema

from pgrouse.config.duration import Duration, between
from pgrouse.config.duration import show as show_duration
from pgrouse.payload_schema import SchemaUnusable, compile_schema

DEFAULTS = "*"
S = timedelta(seconds=1)
DAY = timedelta(days=1)


class Keyword(Enum):
    """What a setting may be set to besides a value."""

    INHERIT = "inherit"  # as the defaults say
    NONE = "none"  # no limit


class TakesKeywords:
    """Lets a setting take the keywords."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Look for a keyword first: archive_success has a value of its own called none."""
        return core_schema.no_info_wrap_validator_function(
            _read,
            handler(source),
            serialization=core_schema.wrap_serializer_function_ser_schema(_write, schema=handler(source)),
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Describe the value or the keywords."""
        return {"anyOf": [handler(schema), {"enum": [each.value for each in Keyword]}]}


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


def _share(value: Any) -> float | str:
    """Read a jitter: "full", or the part of the delay by which it may vary."""
    try:
        share = "full" if value == "full" else float(value)
    except (TypeError, ValueError):
        share = -1.0
    if isinstance(value, bool) or (share != "full" and not 0 <= float(share) <= 1):
        raise ValueError(f'expected "full" or a number from 0 to 1, found {value!r}')
    return share


def _schema(value: Any, info: ValidationInfo) -> Any:
    """Read a JSON Schema: itself, or `@FILE` relative to the folder of the validation's context; make sure that it can be used."""
    if isinstance(value, str) and value.startswith("@"):
        folder = Path((info.context or {}).get("folder", ""))
        value = _read_json(folder / value[1:])
    if not isinstance(value, dict | bool):
        raise ValueError(f'expected a JSON Schema: a table, true, or "@FILE" with one, found {value!r:.80}')  # noqa: TRY004
    try:
        compile_schema(value)
    except SchemaUnusable as error:
        # The caller that reports this names the setting.
        raise ValueError(str(error).removeprefix("payload_schema: ")) from None
    return value


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}): name a file with a JSON Schema") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None


Count = Annotated[int, Field(ge=0, le=2**31 - 1), TakesKeywords()]
Rate = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False), TakesKeywords()]
Switch = Annotated[bool, TakesKeywords()]


class PolicyTable(BaseModel):
    """A table of settings: frozen, with no key but its own, no guessing of types. None = the table does not name it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, use_attribute_docstrings=True)

    @model_serializer(mode="wrap")
    def _named_only(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        settings = {name for model, names in SETTINGS.items() if isinstance(self, model) for name in names}
        unnamed = {name for name in settings if getattr(self, name) is None}
        return {name: value for name, value in handler(self).items() if name not in unnamed}

    @classmethod
    def names(cls) -> list[str]:
        """Return all settings, in the order of the reference."""
        return list(SETTINGS[cls])


class Backoff(PolicyTable):
    """How long to wait before the next attempt. With `kind` this is the whole of it; without, the rest stays as it is."""

    kind: Literal["none", "constant", "linear", "exponential"] | None = None
    """How the delay grows from attempt to attempt."""
    base: Annotated[Duration, between(0 * S, 3650 * DAY)] | None = None
    """The delay after the first failed attempt."""
    step: Annotated[Duration, between(0 * S, 3650 * DAY)] | None = None
    """`linear`: what each further attempt adds."""
    factor: Annotated[float, Field(ge=1, le=1000)] | None = None
    """`exponential`: what each further attempt multiplies by."""
    cap: Annotated[Duration, between(0 * S, 3650 * DAY)] | None = None
    """The longest delay."""
    jitter: Annotated[float | str, BeforeValidator(_share)] | None = None
    """`"full"`: any time from 0 to the delay; a number from 0 to 1: the delay give or take that part."""
    max_total: Annotated[Duration, between(0 * S, 3650 * DAY)] | None = None
    """No attempt begins later than so long after the first."""


class Breaker(PolicyTable):
    """When a topic stops by itself because its messages fail, and how it tries again. What is not given stays as it is."""

    failure_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of attempts that fail from which on the topic stops."""
    min_attempts: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Fewer attempts in a window say nothing."""
    window: Annotated[Duration, between(S, DAY)] | None = None
    """Over how long attempts are counted."""
    pause: Annotated[Duration, between(S, DAY)] | None = None
    """How long the topic stands still before it tries again."""
    probes: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many messages may run to see whether things are well again."""


class TopicPolicy(PolicyTable):
    """What holds for all workers of a topic: the columns of `messages.topic`."""

    max_attempts: Count | None = None
    """How many attempts a message has. 1: a failure, or a worker that dies, ends it."""
    lock_duration: Annotated[Duration, between(0.1 * S, 7 * DAY), TakesKeywords()] | None = None
    """How long a claim and a heartbeat lock."""
    timeout: Annotated[Duration, between(0.001 * S, 30 * DAY), TakesKeywords()] | None = None
    """How long an attempt may run."""
    backoff: Annotated[Backoff, TakesKeywords()] | None = None
    """How long to wait before the next attempt: `kind`, `base`, `step`, `factor`, `cap`, `jitter`, `max_total`."""
    lock_expired_delay: Annotated[Duration, between(0 * S, 30 * DAY), TakesKeywords()] | None = None
    """The same after an expired lock; without it the backoff."""
    strict_lock: Switch | None = None
    """A lock that has run out cannot be settled any more, even if no other worker has the message."""
    key_ttl: Annotated[Duration, between(0 * S, 365 * DAY), TakesKeywords()] | None = None
    """How long a key blocks further publishes after its message has ended."""
    key_on_retry: Annotated[Literal["supersede", "keep"], TakesKeywords()] | None = None
    """What becomes of a message that would be ready again while a newer one of its key is: it gives way (`supersede`), or both stay (`keep`)."""
    ttl: Annotated[Duration, between(0 * S, 3650 * DAY), TakesKeywords()] | None = None
    """How long a message may wait; then it ends as expired."""
    max_depth: Annotated[int, Field(ge=0, le=2**63 - 1), TakesKeywords()] | None = None
    """How many messages may stand in the topic."""
    on_full: Annotated[Literal["error", "drop"], TakesKeywords()] | None = None
    """What a publish to a full topic gets: an error, or nothing while the message is dropped."""
    max_payload_bytes: Annotated[int, Field(ge=1, le=16_777_216), TakesKeywords()] | None = None
    """How large a payload may be."""
    max_concurrency: Count | None = None
    """How many messages of the topic may run at once, over all daemons."""
    dequeue_rate: Rate | None = None
    """How many messages of the topic begin per second, over all daemons."""
    burst: Annotated[int, Field(ge=1, le=1_000_000), TakesKeywords()] | None = None
    """How many may pass at once after a quiet time; without it a tenth of a second's worth of `dequeue_rate`, a second's of `publish_rate`."""
    publish_rate: Rate | None = None
    """How many messages may be published to the topic per second."""
    channel_concurrency: Count | None = None
    """How many messages of one channel may run at once, over all daemons."""
    channel_min_interval: Annotated[Duration, between(0 * S, 30 * DAY), TakesKeywords()] | None = None
    """How long between the beginnings of two messages of one channel."""
    ordered: Switch | None = None
    """Strict order within each channel: no message begins before the earlier ones have ended."""
    archive_success: Annotated[Literal["full", "no_payload", "none"], TakesKeywords()] | None = None
    """What the archive keeps of a success."""
    retention: Annotated[Duration, between(3600 * S, 10_000 * DAY), TakesKeywords()] | None = None
    """How long the archive keeps the topic's messages."""
    dead_letter: Switch | None = None
    """Dead messages also get a live copy in `<topic>.dlq`."""
    max_redrives: Count | None = None
    """How many times a message and its successors may be put back."""
    notify: Annotated[Literal["auto", "always", "off"], TakesKeywords()] | None = None
    """Whether publishes ring: for armed sleepers, for everybody, never."""
    breaker: Annotated[Breaker, TakesKeywords()] | None = None
    """When the topic stops by itself: `failure_rate`, `min_attempts`, `window`, `pause`, `probes`."""
    payload_schema: Annotated[Any, BeforeValidator(_schema), TakesKeywords()] | None = None
    """The JSON Schema of payloads; `"@FILE"` reads it from a file, relative to the configuration."""
    registered: Switch | None = None
    """In the defaults: only registered topics may be published to. In a topic: it is one of them."""


class ChannelPolicy(PolicyTable):
    """What differs for one channel of a topic: the columns of `messages.channel`."""

    concurrency: Count | None = None
    """How many messages of the channel may run at once, over all daemons."""
    min_interval: Annotated[Duration, between(0 * S, 30 * DAY), TakesKeywords()] | None = None
    """How long between the beginnings of two messages of the channel."""


SETTINGS: dict[type[PolicyTable], dict[str, Any]] = {}
SETTINGS |= {model: dict(model.model_fields) for model in (Backoff, Breaker, TopicPolicy, ChannelPolicy)}

# The settings that are tables themselves, on the command line `backoff.base=5s`.
NESTED: dict[str, type[PolicyTable]] = {"backoff": Backoff, "breaker": Breaker}

# What the defaults must have, since every topic may inherit it.
REQUIRED_DEFAULTS = frozenset(
    (
        *("lock_duration", "backoff", "strict_lock", "key_on_retry", "on_full", "ordered", "archive_success"),
        *("retention", "dead_letter", "max_redrives", "notify", "registered"),
    )
)

# What the column of a topic or channel holds for `none`. Without the others only the defaults can be.
NO_LIMIT: dict[str, Any] = {
    **dict.fromkeys(
        ("max_attempts", "max_depth", "max_concurrency", "channel_concurrency", "max_redrives", "concurrency"), 0
    ),
    **dict.fromkeys(("dequeue_rate", "publish_rate"), 0.0),
    **dict.fromkeys(("key_ttl", "ttl", "channel_min_interval", "min_interval"), timedelta(0)),
    "max_payload_bytes": 16_777_216,
    "payload_schema": True,
    "backoff": Backoff(kind="none"),
}


def given_settings(policy: PolicyTable, model: type[PolicyTable]) -> dict[str, Any]:
    """Return the settings of a model that a table gives, and their values; nothing else that the table has."""
    return {name: value for name in SETTINGS[model] if (value := getattr(policy, name)) is not None}


@dataclass(frozen=True)
class DesiredPolicy:
    """The policies wanted for one topic, as far as they are given.

    Attributes:
        policy: the topic's own settings.
        channels: those of single channels.
        subscriptions: the topics whose messages this one gets too.
    """

    policy: TopicPolicy = field(default_factory=TopicPolicy)
    channels: Mapping[str, ChannelPolicy] = field(default_factory=dict)
    subscriptions: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything is given."""
        return bool(given_settings(self.policy, TopicPolicy) or self.channels or self.subscriptions)


def invalid_keywords(topic: str, policy: PolicyTable, model: type[PolicyTable]) -> dict[str, str]:
    """Return the settings whose keyword has no meaning where it stands, each with what is wrong and the fix."""
    return {
        setting: text
        for setting, value in given_settings(policy, model).items()
        if (text := _invalid_keyword(topic, setting, value))
    }


def _invalid_keyword(topic: str, setting: str, value: Any) -> str | None:
    if value is Keyword.INHERIT and topic == DEFAULTS:
        fix = "set a value" if setting in REQUIRED_DEFAULTS else "'none' takes it away"
        return f"the defaults have nothing to inherit from: {fix}, found 'inherit'"
    if value is not Keyword.NONE or setting in NO_LIMIT:
        return None
    if topic != DEFAULTS:
        return "a topic cannot be without it: set a value or 'inherit', found 'none'"
    return "the defaults cannot be without it: set a value, found 'none'" if setting in REQUIRED_DEFAULTS else None


def column(topic: str, setting: str, value: Any) -> Any:
    """Return what the column of a setting holds for a value or word that is not misplaced."""
    if value is Keyword.INHERIT or (value is Keyword.NONE and topic == DEFAULTS and setting not in REQUIRED_DEFAULTS):
        return None
    return NO_LIMIT[setting] if value is Keyword.NONE else value


def show(value: Any) -> str:
    """Write what a setting is set to as the command line reads it."""
    match value:
        case Keyword():
            return str(value.value)
        case bool():
            return str(value).lower()
        case timedelta():
            return show_duration(value)
        case Mapping():
            return json.dumps(value, ensure_ascii=False)
        case float():
            return f"{value:g}"
        case _:
            return str(value)


def show_setting(setting: str, value: Any) -> str:
    """Write what a setting is set to; a zero that lifts a limit as the word for it."""
    lifts = not NO_LIMIT.get(setting, True) and value == NO_LIMIT[setting]
    return show(Keyword.NONE if lifts else value)
