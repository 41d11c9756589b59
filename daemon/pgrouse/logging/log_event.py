"""Converts the values of an event for the log: plain, bounded, and without secrets.

Handlers log any values. No value may lose the event or make the handler's attempt fail: an object may raise in its
`__str__`, contain itself, or be longer than a log can take. A note replaces what is left out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, Final

from structlog.typing import EventDict, WrappedLogger

from pgrouse.config import dsn

MAX_LINE: Final = 65_536  # characters of an event; its last value may exceed this a little
MAX_TEXT: Final = 16_384  # of one value, including nested values
MAX_KEY: Final = 200
MAX_SHORT: Final = 2**63  # of an integer that is shown without further checks
MAX_ITEMS: Final = 200  # of one dictionary or list
MAX_DEPTH: Final = 8
MAX_BITS: Final = 14_000  # of an integer: fewer than 4,300 digits, which is the most that Python writes
# A longer text is cut before secrets are searched. Its cut end is cut again, because half a secret could be there.
MAX_SEARCHED: Final = 8 * MAX_TEXT
# Keys that logging adds for its own use.
INTERNAL: Final = ("_record", "_from_structlog")
# These are written in any case.
FIRST: Final = ("event", "level", "timestamp", "logger", "exception")
CUT: Final = "…"

_name_of: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__


class PlainEvent:
    """The processor that converts the values of an event to plain values.

    Args:
        secrets: hidden in every text.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secrets)

    def __call__(self, _logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
        """Return the event with plain values."""
        short = self._short(event)
        return self._bounded(event) if short is None else short

    def _short(self, event: EventDict) -> EventDict | None:
        """Return an event of few numbers and short texts, as almost every event is.

        Return None if a value needs a closer check.
        """
        if not self._has_short_names(event):
            return None
        plain: dict[str, Any] = {}
        for name, value in event.items():
            kind = type(value)
            if name in INTERNAL or value is None or kind is bool or _is_short_number(value, kind):
                plain[name] = value
            elif kind is str and len(value) <= MAX_KEY and value.isascii():
                plain[name] = dsn.redact(value, self._secrets)
            else:
                return None
        return plain

    def _has_short_names(self, event: EventDict) -> bool:
        """Whether there are few values with short names, so that short values cannot make a long line."""
        try:
            names = " ".join(event)
        except TypeError:
            return False
        return len(names) <= MAX_KEY and names.isascii() and dsn.redact(names, self._secrets) == names

    def _bounded(self, event: EventDict) -> EventDict:
        names = [name for name in event if name not in INTERNAL]
        plain: dict[str, Any] = {}
        left = MAX_LINE
        for name in sorted(names, key=lambda name: name not in FIRST):
            if left <= 0 and name not in FIRST:
                break
            writer = _Writer(self._secrets)
            plain[name] = writer.value(event[name], 0)
            left -= MAX_TEXT - writer.left + len(name)
        shown = {_Writer(self._secrets).key(name, {}): plain[name] for name in names if name in plain}
        cut = {CUT: f"{len(names) - len(shown):,} more"} if len(shown) < len(names) else {}
        return {**{name: event[name] for name in INTERNAL if name in event}, **shown, **cut}


def _is_short_number(value: Any, kind: type) -> bool:
    return -MAX_SHORT <= value <= MAX_SHORT if kind is int else kind is float and math.isfinite(value)


def show(value: object, secrets: Iterable[str] = ()) -> str:
    """Return any value as one bounded text."""
    plain = _Writer(tuple(secrets)).value(value, MAX_DEPTH - 1)
    return plain if isinstance(plain, str) else repr(plain)


class _Writer:
    """Converts one value of an event to a plain value.

    Attributes:
        left: how many more characters it may have.
    """

    def __init__(self, secrets: tuple[str, ...]) -> None:
        self._secrets = secrets
        self.left = MAX_TEXT

    def value(self, value: object, depth: int) -> Any:
        """Return the value in a type that JSON has."""
        try:
            return self._plain(value, depth)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - an object may raise anything when it is looked at
            return self._note(f"({_name_of(type(value))}, which cannot be shown: {_name_of(type(error))})")

    def _note(self, text: str) -> str:
        self.left -= len(text)
        return text

    def _plain(self, value: Any, depth: int) -> Any:
        # Use its real class: an object may claim another class, or raise when asked for it. Its own methods are not
        # called.
        kind = type(value)
        if value is None or kind is bool:
            return value
        if issubclass(kind, int | float):
            return self._number(value, kind)
        if issubclass(kind, dict | list | tuple):
            return self._container(value, kind, depth)
        if issubclass(kind, bytes | bytearray | memoryview):
            return self.text(repr(bytes(value[:MAX_TEXT])) + _more(len(value) - MAX_TEXT, "bytes"))
        return self.text(str.__str__(value) if issubclass(kind, str) else str(value))

    def _container(self, value: Any, kind: type, depth: int) -> Any:
        if depth >= MAX_DEPTH:
            return self._note(f"{CUT} a {_name_of(kind)} nested deeper than {MAX_DEPTH} levels")
        if issubclass(kind, dict):
            return self._dict(islice(dict.items(value), MAX_ITEMS), dict.__len__(value), depth)
        of_its_class = list if issubclass(kind, list) else tuple
        return self._list(islice(of_its_class.__iter__(value), MAX_ITEMS), of_its_class.__len__(value), depth)

    def _dict(self, items: Iterable[tuple[Any, Any]], count: int, depth: int) -> dict[str, Any]:
        plain: dict[str, Any] = {}
        for key, value in items:
            if self.left <= 0:
                break
            name = self.key(key, plain)
            plain[name] = self.value(value, depth + 1)
        return plain if len(plain) == count else {**plain, CUT: f"{count - len(plain):,} more"}

    def _list(self, items: Iterable[Any], count: int, depth: int) -> list[Any]:
        plain: list[Any] = []
        for item in items:
            if self.left <= 0:
                break
            self.left -= 2
            plain.append(self.value(item, depth + 1))
        return plain if len(plain) == count else [*plain, f"{CUT} {count - len(plain):,} more"]

    def key(self, key: object, taken: dict[str, Any]) -> str:
        """Return the key of a dictionary as a text that is not used yet."""
        plain = self.value(key, MAX_DEPTH)
        name = _cut(plain if isinstance(plain, str) else JSON_NAMES.get(plain, str(plain)), MAX_KEY)
        while name in taken:
            name = f"{name} ({_name_of(type(key))})"
        self.left -= 4
        return name

    def _number(self, value: Any, kind: type) -> Any:
        if issubclass(kind, float):
            fraction = float.__float__(value)
            return fraction if math.isfinite(fraction) else str(fraction)
        number = int.__int__(value)
        if number.bit_length() <= MAX_BITS:
            self.left -= number.bit_length() // 3
            return number
        return f"(an integer of about {int(number.bit_length() * math.log10(2)):,} digits)"

    def text(self, text: str) -> str:
        """Return a text without secrets, shortened to the limit."""
        if len(text) > MAX_SEARCHED:
            text = _cut(text, MAX_SEARCHED)
        text = dsn.redact(text, self._secrets)
        if not text.isascii():
            # Half a surrogate pair is not a character, and many JSON parsers refuse it.
            text = text.encode("utf-8", "backslashreplace").decode()
        return self._note(_cut(text, max(MAX_KEY, self.left)))


JSON_NAMES: Final[dict[Any, str]] = {None: "null", True: "true", False: "false"}


def _cut(text: str, limit: int) -> str:
    """Keep both ends of a text: the last line of a traceback names the error."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    return f"{text[: limit - tail]}{CUT} {len(text) - limit:,} characters left out {CUT}{text[-tail:]}"


def _more(count: int, unit: str) -> str:
    return f"{CUT} {count:,} {unit} more" if count > 0 else ""
