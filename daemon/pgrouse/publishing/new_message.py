"""One message to publish, and the checks that it must pass before it is sent.

The database accepts every message that passes here, except for what only it can know: a key that is in use, the size as
jsonb.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.crypto.envelope import ENCRYPTED_BY, MAGIC
from pgrouse.errors import InvalidMessage
from pgrouse.values import jsonb
from pgrouse.values.printable import INVISIBLE

if TYPE_CHECKING:
    from pgrouse.config.policy.policy_options import BackoffKind, BackoffOptions
    from pgrouse.crypto.cipher import Cipher

TOPIC = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}", re.ASCII)
LABEL = re.compile(rf"[^{INVISIBLE}\ud800-\udfff]{{1,200}}")  # a key or a channel
MAX_HEADER_BYTES = 65536
MAX_WAIT = timedelta(days=36_500)
MAX_ATTEMPTS = 2**31 - 1
# The settings of a policy that a message can have itself; max_attempts too, which is a plain number.
OWN_POLICY = ("timeout", "backoff", "retention")
OnConflict = Literal["error", "replace", "ignore", "append"]
ON_CONFLICT: tuple[OnConflict, ...] = ("error", "replace", "ignore", "append")
AfterFailed = Literal["hold", "cancel", "run"]
AFTER_FAILED: tuple[AfterFailed, ...] = ("hold", "cancel", "run")
_ERROR: OnConflict = "error"
_HOLD: AfterFailed = "hold"
MAX_AFTER = 100_000
MAX_ID = 2**63 - 1
FIRST, LAST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


# Not frozen: setting the fields of a frozen one takes four times as long.
@dataclass(slots=True, kw_only=True)
class NewMessage:
    """One message to publish.

    Attributes:
        topic: what kind of message it is.
        payload: any value with a JSON form, pydantic models and dataclasses too; None is JSON's null.
        body: bytes instead of a payload.
        headers: data about the message rather than its content; a JSON object of at most 64 KiB.
        key: deduplication key; at most one untried message of a topic has it.
        channel: fairness and limit group inside the topic.
        priority: 0 (first) to 9; the table's default is 5.
        delay: how long the message is not yet available, by the server's clock: a timedelta, seconds, or "5s".
        available_at: alternatively, the time when it becomes available, with a time zone.
        ttl: how long it may wait for a worker after it is available, in the same forms; overrides the topic's.
        max_attempts: overrides the topic's; 0 means no limit.
        timeout: how long an attempt may run, from 1 ms to 30 days, in the forms of delay; overrides the topic's.
        backoff: how long to wait before the next attempt: a kind like "exponential", or the parts, as in the policy of
            a topic; overrides the topic's.
        retention: how long the archive keeps it, from an hour to 36,500 days, in the forms of delay; overrides the
            topic's.
        on_conflict: what happens if a message with this key waits already: `error`; `replace` the content and TTL of
            that message, which keeps its place; `ignore` this message; `append`: the payloads become one array.
        debounce: how long the key must not be published again before the message is available, in the forms of delay. A
            further publish with debounce starts that time again; `error` then means `replace`.
        max_delay: the longest time that debounce may keep a message after the first publish of its key.
        throttle: ignore this message while the last one of its key waits, and for this time after that one started;
            `error` then means `ignore`.
        after: ids of messages, at most 100,000: it is not claimed before all of them ended with success. delay and ttl
            count from then.
        after_failed: what happens if one of those ends without success: `hold`: it waits for a redrive of that message;
            `cancel`: it also ends as cancelled; `run`: that counts as done.
        batch: the batch in which it counts, see `Client.create_batch`.
        expect_result: whether this role may wait for its result (`wait_for`, `Waiter`); operators may wait for the
            result of any message.
    """

    topic: str
    payload: Any = None
    body: bytes | None = None
    headers: Mapping[str, Any] | None = None
    key: str | None = None
    channel: str | None = None
    priority: int | None = None
    delay: AnyDuration | None = None
    available_at: datetime | None = None
    ttl: AnyDuration | None = None
    max_attempts: int | None = None
    timeout: AnyDuration | None = None
    backoff: BackoffOptions | BackoffKind | None = None
    retention: AnyDuration | None = None
    on_conflict: OnConflict = _ERROR
    debounce: AnyDuration | None = None
    max_delay: AnyDuration | None = None
    throttle: AnyDuration | None = None
    after: Iterable[int] | None = None
    after_failed: AfterFailed = _HOLD
    batch: int | None = None
    expect_result: bool = False


class MessageOptions(TypedDict, total=False):
    """The options of a message, as in NewMessage."""

    headers: Mapping[str, Any] | None
    key: str | None
    channel: str | None
    priority: int | None
    delay: AnyDuration | None
    available_at: datetime | None
    ttl: AnyDuration | None
    max_attempts: int | None
    timeout: AnyDuration | None
    backoff: BackoffOptions | BackoffKind | None
    retention: AnyDuration | None
    on_conflict: OnConflict
    debounce: AnyDuration | None
    max_delay: AnyDuration | None
    throttle: AnyDuration | None
    after: Iterable[int] | None
    after_failed: AfterFailed
    batch: int | None
    expect_result: bool


class PublishOptions(MessageOptions, total=False):
    """The keyword arguments of `publish`, as in NewMessage."""

    body: bytes | None


def to_columns(message: NewMessage) -> dict[str, Any]:
    """Check a message; return its columns, without those that were not given.

    A timedelta as available_at counts from the server's now. Some keys are not columns: `ttl`, which counts from
    available_at; `after` and `after_failed`, which are both there or both missing; `expect_result`; and `debounce`,
    `max_delay` and `throttle`.
    """
    if _is_plain(message):
        return plain_columns(message.topic, message.payload)
    _check_on_conflict(message)
    waits = _debounce_and_throttle(message)
    after = _after(message)
    body = _body(message)
    row = {
        "topic": _topic(message.topic),
        "channel": _label("channel", message.channel),
        "key": _label("key", message.key),
        "priority": _integer("priority", message.priority, 9),
        "payload": _payload(message),
        "body": body,
        "headers": _headers(message.headers, body),
        "max_attempts": _integer("max_attempts", message.max_attempts, MAX_ATTEMPTS),
        "available_at": _available_at(message),
        "ttl": _ttl(message),
        "after": after,
        "after_failed": message.after_failed if after else None,
        "batch_id": _batch(message.batch),
        "expect_result": "true" if message.expect_result else None,
        **waits,
        **own_policy_columns({name: getattr(message, name) for name in OWN_POLICY}),
    }
    return {column: value for column, value in row.items() if value is not None}


def _is_plain(message: NewMessage) -> bool:
    """Return whether it has no options, as most messages. A loop over the fields would take much longer."""
    return (
        message.body is None
        and message.headers is None
        and message.key is None
        and message.channel is None
        and message.priority is None
        and message.delay is None
        and message.available_at is None
        and message.ttl is None
        and message.max_attempts is None
        and message.timeout is None
        and message.backoff is None
        and message.retention is None
        and message.on_conflict is _ERROR
        and message.debounce is None
        and message.max_delay is None
        and message.throttle is None
        and message.after is None
        and message.after_failed is _HOLD
        and message.batch is None
        and message.expect_result is False
    )


def plain_columns(topic: str, payload: Any) -> dict[str, Any]:
    """Return the same for a message without options."""
    return {"topic": _topic(topic), "payload": jsonb.encode(payload)}


def _topic(topic: str) -> str:
    if isinstance(topic, str) and TOPIC.fullmatch(topic):
        return topic
    raise InvalidMessage(
        f"topic {topic!r:.250} is no topic name: use 1 to 200 of A-Z a-z 0-9 . _ : - and a letter or digit first"
    )


def _label(name: str, value: str | None) -> str | None:
    if value is None or (isinstance(value, str) and LABEL.fullmatch(value)):
        return value
    raise InvalidMessage(f"{name} {value!r:.250} cannot be used: it must be a string of 1 to 200 printable characters")


def _integer(name: str, value: int | None, highest: int) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= highest):
        return value
    raise InvalidMessage(f"{name} {value!r:.50} cannot be used: it must be an integer from 0 to {highest}")


def _batch(value: int | None) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_ID):
        return value
    raise InvalidMessage(
        f"batch {value!r:.50} cannot be used: it must be the id of a batch, as create_batch returns it"
    )


def _payload(message: NewMessage) -> str | None:
    if message.body is None:
        return jsonb.encode(message.payload)
    if message.payload is None:
        return None
    raise InvalidMessage(
        "payload and body were both given: a message has one of them; put what is about the body into headers"
    )


def _body(message: NewMessage) -> bytes | None:
    if message.body is None:
        return None
    if not isinstance(message.body, bytes | bytearray | memoryview):
        raise InvalidMessage(
            f"body has the type {type(message.body).__name__}, not bytes: encode it, or publish it as the payload"
        )
    body = bytes(message.body)
    if len(body) > jsonb.MAX_BYTES:
        raise InvalidMessage(
            f"body has {len(body):,} bytes, {jsonb.MAX_BYTES:,} is the limit: "
            "store it elsewhere and publish where it is"
        )
    return body


def _headers(headers: Mapping[str, Any] | None, body: bytes | None) -> str | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidMessage(f"headers has the type {type(headers).__name__}: it must be a mapping of names to values")
    given = dict(headers)
    if body is None or not body.startswith(MAGIC):
        # The headers were passed on from an encrypted message. This message is not encrypted, or not yet.
        given.pop(ENCRYPTED_BY, None)
    return jsonb.encode(given, "headers", MAX_HEADER_BYTES)


def _available_at(message: NewMessage) -> datetime | timedelta | None:
    at = message.available_at
    if at is None:
        return _wait("delay", message.delay)
    if message.delay is not None:
        raise InvalidMessage("delay and available_at were both given: use one of them")
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidMessage(
            f"available_at {at!r:.100} cannot be used: it must be a datetime with a time zone, or use delay"
        )
    if not FIRST <= at <= LAST:
        raise InvalidMessage(
            f"available_at {at.isoformat()} cannot be used: it must be between {FIRST.year} and {LAST.year}"
        )
    return at


def _ttl(message: NewMessage) -> timedelta | None:
    ttl, at = _wait("ttl", message.ttl), message.available_at
    if ttl is not None and at is not None and at.astimezone(UTC) > LAST - ttl:
        raise InvalidMessage(f"ttl {ttl} cannot be used: the message would expire after the year {LAST.year}")
    return ttl


def _check_on_conflict(message: NewMessage) -> None:
    mode = message.on_conflict
    if mode not in ON_CONFLICT:
        raise InvalidMessage(f"on_conflict {mode!r:.50} cannot be used: it must be one of {', '.join(ON_CONFLICT)}")
    if mode != "error" and message.key is None:
        raise InvalidMessage(f"on_conflict {mode!r} needs a key")
    if mode == "append" and message.body is not None:
        raise InvalidMessage("on_conflict 'append' gathers payloads: a body cannot be appended")


def check_append(topic: str, on_conflict: str | None, cipher: Cipher | None) -> None:
    """Refuse to append to what only its reader can decrypt.

    Raises:
        InvalidMessage: the topic is encrypted.
    """
    if cipher is not None and on_conflict == "append" and cipher.covers(topic):
        raise InvalidMessage(
            f"topic {topic} is encrypted: nothing can be appended to what the server cannot read; "
            "use on_conflict 'replace', 'ignore' or 'error'"
        )


def _debounce_and_throttle(message: NewMessage) -> dict[str, timedelta | None]:
    waits = {name: _wait(name, getattr(message, name)) for name in ("debounce", "max_delay", "throttle")}
    if any(wait is not None for wait in waits.values()):
        _check_debounce(message, waits["debounce"], waits["max_delay"])
        _check_throttle(message)
        if message.key is None:
            raise InvalidMessage("debounce and throttle need a key")
    return waits


def _check_debounce(message: NewMessage, debounce: timedelta | None, max_delay: timedelta | None) -> None:
    if debounce is None:
        if max_delay is not None:
            raise InvalidMessage("max_delay was given and debounce was not: give both")
        return
    if max_delay is not None and max_delay < debounce:
        raise InvalidMessage(f"max_delay {max_delay} cannot be used: it must not be shorter than debounce, {debounce}")
    if message.delay is not None or message.available_at is not None:
        raise InvalidMessage("debounce was given with delay or available_at: the delay is debounce")
    if message.after:
        raise InvalidMessage(
            "debounce and after were both given: what waits for others has no time that could be moved"
        )
    if message.on_conflict == "ignore":
        raise InvalidMessage("debounce and on_conflict 'ignore' were both given: use 'replace' or 'append'")


def _check_throttle(message: NewMessage) -> None:
    if message.throttle is None:
        return
    if message.debounce is not None:
        raise InvalidMessage("debounce and throttle were both given: use one of them")
    if message.on_conflict in ("replace", "append"):
        raise InvalidMessage(f"throttle and on_conflict {message.on_conflict!r} were both given: use 'ignore'")


def own_policy_columns(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of those settings of `OWN_POLICY` that are given instead of the topic's.

    Raises:
        InvalidMessage: a value that the setting cannot have; the text names it.
    """
    given = {name: settings[name] for name in OWN_POLICY if settings.get(name) is not None}
    if not given:
        return {}
    from pgrouse.config.policy.own_policy import read_own_policy  # noqa: PLC0415 - slow to import: few publishers need it

    try:
        read = read_own_policy(given)
    except ValueError as error:
        raise InvalidMessage(f"{error}") from None
    return {name: jsonb.encode(value, name) if name == "backoff" else value for name, value in read.items()}


def _after(message: NewMessage) -> str | None:
    """Return the ids as an array of PostgreSQL; None if there are none."""
    if message.after_failed not in AFTER_FAILED:
        raise InvalidMessage(
            f"after_failed {message.after_failed!r:.50} cannot be used: it must be one of {', '.join(AFTER_FAILED)}"
        )
    if isinstance(message.after, int | str):
        raise InvalidMessage(f"after {message.after!r:.50} cannot be used: it must be a list of ids")
    ids = list(message.after or ())
    for each in ids:
        if not isinstance(each, int) or isinstance(each, bool) or not 1 <= each <= MAX_ID:
            raise InvalidMessage(f"after has {each!r:.50}, which is no id of a message (0 is one that was dropped)")
    if len(ids) > MAX_AFTER:
        raise InvalidMessage(
            f"after has {len(ids):,} messages, {MAX_AFTER:,} is the limit: gather them by messages between"
        )
    if ids and message.on_conflict in ("replace", "append"):
        raise InvalidMessage(
            f"after and on_conflict {message.on_conflict!r} were both given: what waits under the key keeps its place; "
            "use 'error' or 'ignore'"
        )
    return f"{{{','.join(str(int(each)) for each in ids)}}}" if ids else None


def _wait(name: str, value: AnyDuration | None) -> timedelta | None:
    if value is None:
        return None
    with suppress(TypeError, ValueError):
        wait = duration.to_timedelta(value, name)
        if wait <= MAX_WAIT:
            return wait
    raise InvalidMessage(
        f"{name} {value!r:.100} cannot be used: it must be {duration.WAYS}, from 0 to {MAX_WAIT.days:,} days"
    )
