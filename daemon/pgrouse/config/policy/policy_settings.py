"""The table of policy settings: one row per setting, in the order of the reference.

A row is a field: its name, its type and bounds, its meaning (the docstring), and a PolicySetting with the rest. The
configuration, the command line, the dashboard, the HTTP API and the reference read everything about a setting from
here. The server checks values by itself (messages.check_policy); a test compares both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer
from pydantic.fields import FieldInfo

from pgrouse.config import duration
from pgrouse.config.described_model import DescribedModel, meanings
from pgrouse.config.duration import Bounds, Duration, between
from pgrouse.config.setting_types import MIN_RATE, Count, Jitter, JsonSchema, Rate, Switch, TakesKeywords, TakesKind

S = timedelta(seconds=1)
DAY = timedelta(days=1)
# A bound of a whole number above this is not worth showing.
UNBOUNDED = 2**31 - 1
# The key of an effect that applies to all values without their own text.
OTHER = object()


@dataclass(frozen=True)
class PolicySetting:
    """One row of the table. The attributes below the line are read from the field, unless they are given.

    Attributes:
        group: the title under which forms and help show it.
        unit: what a number counts, in the plural: `messages`, `messages per second`.
        default: its value in the row `*` of a new database; None = nothing.
        none: the column's value for the keyword `none`; None = a topic must have the setting.
        is_required: whether the defaults must have it, since every topic may inherit it.
        effects: what a value does, in a sentence, by value (by kind for a backoff). In a text `{value}` stands for the
            value, `{amount}` for the value with its unit, and the name of a part of a table for that part.
    """

    group: str = ""
    unit: str = ""
    default: Any = None
    none: Any = None
    is_required: bool = False
    effects: Mapping[Any, str] = field(default_factory=dict)
    # Read from the field:
    table: type[PolicyTable] | None = None
    name: str = ""
    low: Any = None
    high: Any = None
    choices: tuple[str, ...] = ()
    takes: str = ""

    @property
    def meaning(self) -> str:
        """The meaning of the setting: the docstring of the field, on one line."""
        return "" if self.table is None else " ".join(meanings(self.table).get(self.name, "").split())

    def effect(self, value: Any) -> str:
        """Return a sentence that says what a value does; "" if the table has none."""
        parts = NESTED_DEFAULTS[self.name] | value if self.name in NESTED else {}
        key = parts.get("kind", OTHER) if parts else value
        text = next((text for known, text in self.effects.items() if known == key), self.effects.get(OTHER, ""))
        return text.format(value=_shown(value), amount=self._amount(value), **parts)

    def _amount(self, value: Any) -> str:
        noun = self.unit.partition(" ")[0]
        return f"{_shown(value)} {noun.removesuffix('s') if value == 1 else noun}".strip()


def _setting(**row: Any) -> Any:
    """Return the default of a field, with its row of the table."""
    default: Any = Field(default=None)
    default.metadata.append(PolicySetting(**row))
    return default


_of_attempts = partial(_setting, group="Attempts")
_of_limits = partial(_setting, group="Limits")
_of_publishing = partial(_setting, group="Publishing")
_of_archive = partial(_setting, group="Archive and dead letters")


def _shown(value: Any) -> str:
    match value:
        case timedelta():
            return duration.show(value)
        case bool():
            return str(value).lower()
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,g}"
        case _:
            return str(value)


class PolicyTable(DescribedModel):
    """A table of settings: frozen, with no other keys, and no type conversion. None = the table does not set it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

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
    """How long to wait before the next attempt.

    With `kind`, this is the whole backoff; without it, the other parts stay as they are.
    """

    kind: Literal["none", "constant", "linear", "exponential"] | None = None
    """How the delay grows from attempt to attempt."""
    base: Annotated[Duration, between(0 * S, 3650 * DAY)] | None = _setting(default=S)
    """The delay after the first failed attempt."""
    step: Annotated[Duration, between(0 * S, 3650 * DAY)] | None = None
    """`linear`: the delay that each further attempt adds."""
    factor: Annotated[float, Field(ge=1, le=1000)] | None = None
    """`exponential`: the factor by which each further attempt multiplies the delay."""
    cap: Annotated[Duration, between(0 * S, 3650 * DAY)] | None = None
    """The longest delay."""
    jitter: Jitter | None = _setting(low=0, high=1, takes='`"full"`, or 0\N{EN DASH}1')
    """`"full"`: any time from 0 to the delay. A number from 0 to 1: the delay plus or minus that fraction."""
    max_total: Annotated[Duration, between(0 * S, 3650 * DAY)] | None = None
    """No attempt begins later than this time after the first attempt began."""


class Breaker(PolicyTable):
    """When a topic stops automatically because its messages fail, and how it tries again.

    Parts that are not given stay as they are.
    """

    failure_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    """The fraction of attempts that must fail before the topic stops."""
    min_attempts: Annotated[int, Field(ge=1, le=1_000_000)] | None = _setting(unit="attempts")
    """The topic does not stop before this many attempts ended in the window."""
    window: Annotated[Duration, between(S, DAY)] | None = None
    """The time over which attempts are counted."""
    pause: Annotated[Duration, between(S, DAY)] | None = None
    """How long the topic stops before it tries again."""
    probes: Annotated[int, Field(ge=1, le=1000)] | None = _setting(unit="messages")
    """How many messages may run at once to find out whether the topic works again."""


class TopicPolicy(PolicyTable):
    """What applies to all workers of a topic: the columns of `messages.topic`."""

    max_attempts: Count | None = _of_attempts(
        unit="attempts",
        default=1,
        none=0,
        effects={
            0: "A message is tried until it succeeds, however often it fails.",
            1: "A message that fails once is dead, and so is a message whose worker dies.",
            OTHER: "A message that fails is tried {value} times in all; then it is dead.",
        },
    )
    """How many attempts a message has. 1: a failure, or a worker that dies, ends it."""
    lock_duration: Annotated[Duration, between(0.1 * S, 7 * DAY), TakesKeywords()] | None = _of_attempts(
        default=30 * S,
        is_required=True,
        effects={
            OTHER: "When a worker dies, its messages are available again after {value}. "
            "Messages that run now keep their lock."
        },
    )
    """How long a claim or a heartbeat locks a message."""
    timeout: Annotated[Duration, between(0.001 * S, 30 * DAY), TakesKeywords()] | None = _of_attempts(
        effects={OTHER: "A handler that runs for longer than {value} is stopped, and the attempt has failed."}
    )
    """How long an attempt may run."""
    backoff: Annotated[Backoff, TakesKind("constant", "linear", "exponential"), TakesKeywords()] | None = _of_attempts(
        default={"kind": "exponential", "base": "1s", "factor": 2, "cap": "10m", "jitter": "full"},
        none=Backoff(kind="none"),
        is_required=True,
        effects={
            "none": "A message that failed is tried again at once.",
            "constant": "Each new attempt begins {base} after the one that failed.",
            "linear": "The first new attempt begins {base} after the failure, and each later one waits "
            "longer by the same step.",
            OTHER: "The first new attempt begins about {base} after the failure, and each later one waits a "
            "multiple of that, up to the cap.",
        },
    )
    """How long to wait before the next attempt: `kind`, `base`, `step`, `factor`, `cap`, `jitter`, `max_total`."""
    lock_expired_delay: Annotated[Duration, between(0 * S, 30 * DAY), TakesKeywords()] | None = _of_attempts(
        effects={OTHER: "A message whose worker died waits {value} before it is tried again."}
    )
    """How long to wait after an expired lock; without it, the backoff applies."""
    strict_lock: Switch | None = _of_attempts(
        default=False,
        is_required=True,
        effects={
            True: "A worker whose lock has expired cannot settle its message, even if no other worker has claimed it.",
            False: "A worker whose lock has expired can still settle its message as long as no other worker has "
            "claimed it.",
        },
    )
    """A message whose lock has expired can no longer be settled, even if no other worker has it."""
    breaker: Annotated[Breaker, TakesKeywords()] | None = _of_attempts(
        effects={
            OTHER: "When too many attempts fail, the topic stops automatically, and tries again with a few "
            "messages after the pause."
        }
    )
    """When the topic stops automatically: `failure_rate`, `min_attempts`, `window`, `pause`, `probes`."""
    max_concurrency: Count | None = _of_limits(
        unit="messages",
        none=0,
        effects={
            0: "The concurrency of the workers is the only limit.",
            OTHER: "At most {amount} of the topic run at once, across all workers; others wait. "
            "Messages that run now continue.",
        },
    )
    """How many messages of the topic may run at once, across all workers."""
    worker_concurrency: Count | None = _of_limits(
        unit="messages",
        none=0,
        effects={
            0: "Each worker runs as many as its own concurrency allows.",
            OTHER: "Each worker runs at most {amount} of the topic at once; others wait. "
            "Messages that run now continue.",
        },
    )
    """How many messages of the topic one worker may run at once."""
    dequeue_rate: Rate | None = _of_limits(
        unit="messages per second",
        low=MIN_RATE,
        none=0.0,
        effects={
            0: "Messages begin as fast as workers claim them.",
            OTHER: "At most {amount} of the topic begin per second, across all workers; others wait.",
        },
    )
    """How many messages of the topic may begin per second, across all workers."""
    burst: Annotated[int, Field(ge=1, le=1_000_000), TakesKeywords()] | None = _of_limits(
        unit="messages", effects={OTHER: "After a quiet time, up to {amount} may pass at once."}
    )
    """How many messages may pass at once after a quiet time; without it, the `dequeue_rate` of a tenth of a second, and
    the `publish_rate` of one second."""
    channel_concurrency: Count | None = _of_limits(
        unit="messages",
        none=0,
        effects={
            0: "Messages of one channel run in parallel without a limit.",
            OTHER: "At most {amount} of each channel run at once, across all workers.",
        },
    )
    """How many messages of one channel may run at once, across all workers."""
    channel_min_interval: Annotated[Duration, between(0 * S, 30 * DAY), TakesKeywords()] | None = _of_limits(
        none=0 * S,
        effects={
            0 * S: "Messages of one channel begin as soon as they can.",
            OTHER: "Within a channel, at least {value} pass between the starts of two messages.",
        },
    )
    """The minimum time between the starts of two messages of one channel."""
    ordered: Switch | None = _of_limits(
        default=False,
        is_required=True,
        effects={
            True: "Within a channel, a message begins only after all earlier ones have ended; "
            "a message that is retried blocks those behind it.",
            False: "Messages of a channel no longer wait for the earlier ones.",
        },
    )
    """Strict order within each channel: no message begins before the earlier ones have ended."""
    publish_rate: Rate | None = _of_publishing(
        unit="messages per second",
        low=MIN_RATE,
        none=0.0,
        effects={
            0: "Publishers may publish as fast as they can.",
            OTHER: "Publishing more than {amount} per second is an error.",
        },
    )
    """How many messages may be published to the topic per second."""
    max_depth: Annotated[int, Field(ge=0, le=2**63 - 1), TakesKeywords()] | None = _of_publishing(
        unit="messages",
        none=0,
        effects={
            0: "Any number of messages may wait.",
            OTHER: "The topic is full when {amount} wait in it; on_full decides what happens then.",
        },
    )
    """How many messages the topic may hold."""
    on_full: Annotated[Literal["error", "drop"], TakesKeywords()] | None = _of_publishing(
        default="error",
        is_required=True,
        effects={
            "error": "A publish to the full topic is an error, and the publisher's transaction ends.",
            "drop": "A message for the full topic is dropped without an error: it is lost.",
        },
    )
    """What happens to a publish while the topic is full: it is refused with an error, or its message is dropped without
    one."""
    max_payload_bytes: Annotated[int, Field(ge=1, le=16_777_216), TakesKeywords()] | None = _of_publishing(
        unit="bytes", none=16_777_216, effects={OTHER: "Larger payloads than {amount} are refused at the publish."}
    )
    """The maximum size of a payload."""
    payload_schema: JsonSchema | None = _of_publishing(
        none=True,
        takes='a table, `true`, or `"@FILE"`, relative to the configuration',
        effects={
            True: "Any JSON may be published.",
            OTHER: "A payload that does not match the schema is refused at the publish, or rejected by the worker.",
        },
    )
    """The JSON Schema of payloads. Clients check it when they publish, and workers before they run the handler; the
    database does not."""
    ttl: Annotated[Duration, between(0 * S, 3650 * DAY), TakesKeywords()] | None = _of_publishing(
        none=0 * S,
        effects={
            0 * S: "Messages wait for as long as it takes.",
            OTHER: "A message that waits longer than {value} ends as expired. "
            "This applies to messages published from then on.",
        },
    )
    """How long a message may wait after it is available, unless its publisher sets another time; then it ends as
    expired."""
    key_ttl: Annotated[Duration, between(0 * S, 365 * DAY), TakesKeywords()] | None = _of_publishing(
        none=0 * S,
        effects={
            0 * S: "A key is free again as soon as its message has begun.",
            OTHER: "For {value} after its message has ended, a key publishes nothing new.",
        },
    )
    """How long a key blocks further publishes after its message has ended."""
    key_on_retry: Annotated[Literal["supersede", "keep"], TakesKeywords()] | None = _of_publishing(
        default="supersede",
        is_required=True,
        effects={
            "supersede": "A message that would be retried is cancelled if a newer message with its key is ready.",
            "keep": "A message that is retried stays, even if a newer message with its key is ready.",
        },
    )
    """What happens to a message that would be ready again while a newer message with its key is ready: the older
    message is cancelled (`supersede`), or both stay (`keep`)."""
    notify: Annotated[Literal["auto", "always", "off"], TakesKeywords()] | None = _of_publishing(
        default="auto",
        is_required=True,
        effects={
            "auto": "A publish notifies only if a sleeping worker would otherwise find the message too late.",
            "always": "Every publish notifies, also for listeners outside of pgrouse; this makes publishing slower.",
            "off": "No publish notifies: workers find messages by polling.",
        },
    )
    """When publishes send notifications: if a worker sleeps (`auto`), always, or never (`off`)."""
    accept_publishes: Switch | None = _of_publishing(
        default=True,
        is_required=True,
        effects={True: "The topic accepts publishes.", False: "Every publish to the topic is rejected."},
    )
    """Whether the topic accepts publishes. If the defaults say false, only topics that set it to true do."""
    archive_success: Annotated[Literal["full", "no_payload", "none"], TakesKeywords()] | None = _of_archive(
        default="full",
        is_required=True,
        effects={
            "full": "Messages that succeeded are archived with their payload.",
            "no_payload": "Messages that succeeded are archived without their payload: they cannot be replayed.",
            "none": "Messages that succeeded are not archived.",
        },
    )
    """What the archive keeps of a success."""
    retention: Annotated[Duration, between(3600 * S, duration.LONGEST), TakesKeywords()] | None = _of_archive(
        default=30 * DAY,
        is_required=True,
        effects={
            OTHER: "Archived messages older than {value} are deleted by the next maintenance, and cannot be restored."
        },
    )
    """How long the archive keeps the topic's messages; up to one day longer, because whole days (UTC) are dropped."""
    dead_letter: Switch | None = _of_archive(
        default=False,
        is_required=True,
        effects={
            True: "Each dead message also gets a live copy in the topic with .dlq after its name.",
            False: "Dead messages stay in the archive only.",
        },
    )
    """Dead messages also get a live copy in `<topic>.dlq`. Refused for `.dlq` topics, and for names of more than 196
    bytes."""
    max_redrives: Count | None = _of_archive(
        unit="redrives",
        default=10,
        none=0,
        is_required=True,
        effects={
            0: "A dead message may be redriven any number of times.",
            1: "A message may be redriven once; then only by force.",
            OTHER: "A message may be redriven {value} times; then only by force.",
        },
    )
    """How many times a message and the messages that replace it may be redriven."""


class ChannelPolicy(PolicyTable):
    """The policy of one channel of a topic: the columns of `messages.channel`."""

    concurrency: Count | None = _of_limits(unit="messages", none=0)
    """How many messages of the channel may run at once, across all workers."""
    min_interval: Annotated[Duration, between(0 * S, 30 * DAY), TakesKeywords()] | None = _of_limits(none=0 * S)
    """The minimum time between the starts of two messages of the channel."""


def _row(table: type[PolicyTable], name: str, described: FieldInfo) -> PolicySetting:
    """Return the row of a field."""
    parts = list(_flatten(described.annotation))
    given = next((each for each in described.metadata if isinstance(each, PolicySetting)), PolicySetting())
    low, high = _bounds(parts)
    row = replace(
        given,
        table=table,
        name=name,
        low=low if given.low is None else given.low,
        high=high if given.high is None else given.high,
        choices=tuple(each for part in parts if get_origin(part) is Literal for each in get_args(part))
        or (("true", "false") if bool in parts else ()),
    )
    return replace(row, takes=given.takes or _takes(row, parts))


def _flatten(annotation: Any) -> Iterator[Any]:
    """Yield the types and the metadata that an annotation consists of."""
    if get_origin(annotation) is Literal or not get_args(annotation):
        yield annotation
        return
    for each in getattr(annotation, "__metadata__", ()):
        yield from each.metadata if isinstance(each, FieldInfo) else (each,)
    for inner in get_args(annotation)[: 1 if get_origin(annotation) is Annotated else None]:
        yield from _flatten(inner)


def _bounds(parts: list[Any]) -> tuple[Any, Any]:
    """Return the minimum and the maximum; None where there is none. A duration has them in a Bounds."""
    for each in parts:
        if isinstance(each, Bounds):
            return each.low, each.high
    low = next((each.ge for each in parts if hasattr(each, "ge")), None)
    return low, next((each.le for each in parts if hasattr(each, "le")), None)


def _takes(row: PolicySetting, parts: list[Any]) -> str:
    if any(isinstance(each, type) and issubclass(each, PolicyTable) for each in parts):
        return "a table"
    if bool in parts:
        return "true/false"
    if row.choices:
        return ", ".join(f"`{value}`" for value in row.choices)
    if isinstance(row.low, timedelta):
        return f"duration, {duration.show(row.low)}\N{EN DASH}{duration.show(row.high)}"
    above = next((f"above {each.gt}" for each in parts if hasattr(each, "gt")), None)
    low = above or (f"{row.low:f}" if row.low == MIN_RATE else f"{row.low:g}")
    bounds = f"{low} or more" if row.high >= UNBOUNDED else f"{low}\N{EN DASH}{row.high}"
    return f"{bounds} {row.unit}".strip()


SETTINGS: dict[type[PolicyTable], dict[str, PolicySetting]] = {}
SETTINGS |= {
    model: {name: _row(model, name, described) for name, described in model.model_fields.items()}
    for model in (Backoff, Breaker, TopicPolicy, ChannelPolicy)
}

# The settings that are tables; on the command line `backoff.base=5s`.
NESTED: dict[str, type[PolicyTable]] = {"backoff": Backoff, "breaker": Breaker}
# The values that the server uses for parts that a table does not name.
NESTED_DEFAULTS = {
    setting: {name: _shown(row.default) for name, row in SETTINGS[model].items() if row.default is not None}
    for setting, model in NESTED.items()
}
