"""Python values as JSON that a `jsonb` column accepts and every consumer can read again.

A usual value is only serialized. Only values that look faulty are walked to find the place of the fault.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_jsonable_python

from pgrouse.errors import InvalidMessage

MAX_BYTES = 16 * 1024 * 1024  # the CHECK of messages.message
MAX_DEPTH = 200  # Python's parser fails near 1,000; parsers of other languages fail earlier

MAX_DIGITS = 4300  # Python's parser refuses longer integers
LONG_INTEGER = f"an integer of more than {MAX_DIGITS:,} digits, which readers refuse: publish it as a string"

CONTAINERS = (dict, list, tuple)

# A key that json.dumps may have converted to a string.
_LIKE_NO_STRING = re.compile(r'"(?:[-0-9][-+.0-9eE]*|true|false|null)":')
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Raw:
    """JSON text that is published unchanged, with every digit of its numbers."""

    text: str


def encode(value: Any, where: str = "payload", max_bytes: int = MAX_BYTES) -> str:
    """Return the value as JSON text.

    pydantic models, dataclasses, dates, UUIDs, decimals, enums and sets are written as pydantic writes them.

    Raises:
        InvalidMessage: it has no JSON form, or none that PostgreSQL stores; the text names the place in the value.
    """
    if isinstance(value, Raw):
        encode(decode(value.text, where), where, max_bytes)
        return value.text
    try:
        text = _write(value)
        size = len(text) if text.isascii() else len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise _invalid(value, where, error) from error
    if size > max_bytes:
        raise InvalidMessage(
            f"{where} has {size:,} bytes, {max_bytes:,} is the limit: store it elsewhere and publish where it is"
        )
    if "\\u0000" in text:
        _refuse_faults(value, where)
    refuse_equal_keys(value, text, where)
    if len(text) > 2 * MAX_DEPTH and text.count("[") + text.count("{") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise _too_deep(where)
    return text


def refuse_equal_keys(value: Any, text: str, where: str) -> None:
    """Refuse a dictionary with two keys that are the same in JSON, such as 1 and "1".

    Only one of their values could be kept.

    Args:
        value: the value that was written.
        text: its JSON text.
        where: the name that errors use.

    Raises:
        InvalidMessage: there are such keys; the text names them and their place.
    """
    # Only keys that are not strings can do that. Almost every text shows that there are none; otherwise the keys show
    # it.
    if type(value) is dict and text.count("{") == 1:
        is_clear = _are_texts(value)
    else:
        is_clear = not _LIKE_NO_STRING.search(text) or _has_text_keys(value)
    if not is_clear:
        _refuse_faults(value, where)


def _are_texts(value: Any) -> bool:
    """Whether all keys are strings; True if the value is not a dictionary."""
    if isinstance(value, dict):
        try:
            "".join(value)  # this checks each of them faster than a loop
        except TypeError:
            return False
    return True


def _has_text_keys(value: Any) -> bool:
    if isinstance(value, dict):
        return _are_texts(value) and all(_has_text_keys(each) for each in value.values() if type(each) in CONTAINERS)
    return not isinstance(value, list | tuple) or all(
        _has_text_keys(each) for each in value if type(each) in CONTAINERS
    )


def decode(text: str, where: str = "payload") -> Any:
    """Read JSON text that a user typed; this is stricter than `json.loads`.

    Raises:
        InvalidMessage: it is not JSON, has a key twice in one object, or holds something that PostgreSQL cannot store.
    """
    try:
        value = json.loads(
            text, object_pairs_hook=_without_duplicates, parse_float=_finite, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        raise InvalidMessage(
            f"{where} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise _too_deep(where) from error
    except InvalidMessage:
        raise
    except ValueError as error:  # from int(), without a position
        raise InvalidMessage(f"{where} contains {LONG_INTEGER}") from error
    return value


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        # Count all keys in one pass: a client of the HTTP API may send a million of them.
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise InvalidMessage(f"the key {twice!r:.100} occurs twice in one object: only one of the values could be kept")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise InvalidMessage(f"the number {text:.50} is too large, readers make it infinity: publish it as a string")
    return number


def _refuse_constant(text: str) -> None:
    raise InvalidMessage(f"{text} is not JSON: use null or a string")


def _plain(value: Any) -> Any:
    """Convert a value that is not plain JSON, as pydantic would."""
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError("bytes have no JSON form")
    return to_jsonable_python(value)


_encoder = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
# JSONEncoder makes such an object for each value, which takes as long as a small value itself. Without `markers` it
# keeps nothing between values, so threads may share it, but it does not see that a value contains itself. Only CPython
# has it.
_make: Any = getattr(json.encoder, "c_make_encoder", None)
_chunks = _make and _make(None, _plain, json.encoder.encode_basestring, None, ":", ",", False, False, False)


def _write(value: Any) -> str:
    """Write plain JSON values, and others as pydantic would."""
    if _chunks is None:
        return _encoder.encode(value)
    try:
        return "".join(_chunks(value, 0))
    except RecursionError:
        return _encoder.encode(value)  # its error tells whether the value contains itself


def _depth(text: str) -> int:
    depth = deepest = 0
    for bracket in re.finditer(r'"(?:[^"\\]|\\.)*"|([\[{])|([\]}])', text):
        depth += 1 if bracket[1] else -1 if bracket[2] else 0
        deepest = max(deepest, depth)
    return deepest


def _too_deep(where: str) -> InvalidMessage:
    return InvalidMessage(f"{where} is nested deeper than {MAX_DEPTH} levels: flatten it")


def _invalid(value: Any, where: str, error: Exception) -> Exception:
    """Return the error that names the place of the fault in the value."""
    if isinstance(error, RecursionError):
        return _too_deep(where)
    try:
        _refuse_faults(value, where)
    except InvalidMessage as found:
        return found
    return InvalidMessage(f"{where} has no JSON form: {error}")


def _refuse_faults(value: Any, where: str) -> None:
    """Raise for the first fault in the value, if it has one."""
    for place, inner in _walk(value, where, 0):
        if fault := _fault(inner):
            raise InvalidMessage(f"{place} {fault}")


def _walk(value: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Yield every scalar and every key of a value with its place, as a Python expression."""
    if depth > MAX_DEPTH:
        raise InvalidMessage(f"{place[:40]}… is nested deeper than {MAX_DEPTH} levels, or contains itself: flatten it")
    match value:
        case dict():
            _refuse_equal(value, place)
            for key, inner in value.items():
                yield f"a key of {place}", Key(key)
                yield from _walk(inner, f"{place}[{_shown(key)}]", depth + 1)
        case list() | tuple():
            for i, inner in enumerate(value):
                yield from _walk(inner, f"{place}[{i}]", depth + 1)
        case None | bool() | int() | float() | str():
            yield place, value
        case _:
            yield from _walk_converted(value, place, depth)


def _refuse_equal(value: dict[Any, Any], place: str) -> None:
    written: dict[str, Any] = {}
    for key in value:
        if isinstance(key, str | int | float | None):
            first = written.setdefault(_as_key(key), key)
            if first is not key:
                raise InvalidMessage(
                    f"{place} has the keys {_shown(first)} and {_shown(key)}, which are the same in JSON: "
                    "only one of their values could be kept"
                )


def _as_key(key: str | float | None) -> str:
    """Return a key as json.dumps writes it; some text for a key that json.dumps refuses."""
    return key if isinstance(key, str) else _shown(key) if _fault_of_number(key) else json.dumps(key)


def _shown(key: Any) -> str:
    try:
        return f"{key!r:.100}"
    except Exception:  # noqa: BLE001 - an integer may be too long to be shown, and an object may do anything
        return f"({type(key).__name__})"


def _walk_converted(value: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    try:
        plain = _plain(value)
    except (TypeError, ValueError) as error:
        fix = (
            "publish them as body="
            if isinstance(value, bytes | bytearray | memoryview)
            else "convert it to plain values first"
        )
        raise InvalidMessage(f"{place} is of type {type(value).__name__}, which has no JSON form: {fix}") from error
    yield from _walk(plain, place, depth + 1)


class Key:
    """A key of a dictionary, as distinct from a value."""

    def __init__(self, name: Any) -> None:
        self.name = name


def _fault(value: Any) -> str | None:
    match value:
        case Key(name=str(name)):
            return _fault_of_text(name)
        case Key(name=None | bool() | int() | float() as number):
            return _fault_of_number(number)  # json.dumps writes other numbers as text
        case Key(name=name):
            return f"is of type {type(name).__name__}: JSON has only strings as keys"
        case str():
            return _fault_of_text(value)
        case _:
            return _fault_of_number(value)


def _fault_of_text(text: str) -> str | None:
    if "\x00" in text:
        return "contains a NUL character, which PostgreSQL cannot store: remove it, or publish bytes as body="
    if _LONE_SURROGATE.search(text):
        return "contains half of a surrogate pair, which is no character: decode the text with the right encoding"
    return None


def _fault_of_number(number: float | None) -> str | None:
    if isinstance(number, float) and not math.isfinite(number):
        return f"is {number}, which JSON does not have: use None or a string"
    if isinstance(number, int) and abs(number) >= 10**MAX_DIGITS:
        return f"is {LONG_INTEGER}"
    return None
