"""What an error of the server means to who publishes, whichever driver it came through."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pgrouse.errors import (
    KeyTaken,
    NotAdmitted,
    PayloadTooLarge,
    PublishRateExceeded,
    TopicFull,
    TopicNotRegistered,
    TopicReserved,
    UnknownPredecessor,
)

KINDS = (TopicFull, PublishRateExceeded, TopicNotRegistered, PayloadTooLarge, TopicReserved, UnknownPredecessor)
KEYS = ("message_key", "held_key_pkey")
# In no language are these words translated, nor their order changed.
NAMED = re.compile(r"\(topic, key\)=\(([^,]+), (.*)\)", re.DOTALL)
LINE = re.compile(r"COPY message, \S+ (\d+)")


class Said(NamedTuple):
    """What the server said of an error."""

    sqlstate: str | None
    text: str
    hint: str | None
    detail: str | None
    context: str | None
    schema: str | None
    constraint: str | None

    @property
    def line(self) -> int | None:
        """The line of a COPY that is meant."""
        found = LINE.search(self.context or "")
        return int(found[1]) if found else None


Named = tuple[str, str | None]


@contextmanager
def in_our_words(named: Callable[[Said], Named | None]) -> Iterator[None]:
    """Raise what a policy of the topic is against as an error of ours, with the driver's as its cause; let all else pass.

    Args:
        named: tells topic and key of the message in question, if they are known.
    """
    try:
        yield
    except Exception as error:
        said = _said(error)
        refused = None if said is None else _refusal(said, named)
        if refused is None:
            raise
        raise refused from error


def _refusal(said: Said, named: Callable[[Said], Named | None]) -> NotAdmitted | None:
    text = ": ".join(filter(None, [said.text, said.hint]))
    for kind in KINDS:
        if said.sqlstate == kind.sqlstate:
            return kind(text)
    if said.sqlstate == KeyTaken.sqlstate and said.constraint in KEYS and said.schema == "messages":
        return KeyTaken(text if said.hint else _taken(_of_detail(said) or named(said)))
    return None


def _taken(named: Named | None) -> str:
    if named is None:
        return "a message with this key waits already: nothing was published"
    topic, key = named
    return f"a message of topic {topic} with the key {key!r} waits already: nothing was published"


def _of_detail(said: Said) -> Named | None:
    """Only who may read keys is told."""
    found = NAMED.search(said.detail or "")
    return (found[1], found[2]) if found else None


def _said(error: BaseException | None) -> Said | None:
    """Find what the server said; SQLAlchemy and Django raise errors of their own because of the driver's."""
    while error is not None:
        if (diag := getattr(error, "diag", None)) is not None:  # psycopg
            return Said(
                diag.sqlstate,
                diag.message_primary or "",
                diag.message_hint,
                diag.message_detail,
                diag.context,
                diag.schema_name,
                diag.constraint_name,
            )
        if hasattr(error, "constraint_name"):  # asyncpg
            return Said(*(getattr(error, name, None) for name in OF_ASYNCPG))  # type: ignore[arg-type]
        if error.args and isinstance(error.args[0], dict):  # pg8000: the fields of the protocol, by their letters
            return Said(*(error.args[0].get(letter) for letter in "CMHDWsn"))  # type: ignore[arg-type]
        error = error.__cause__
    return None


OF_ASYNCPG = ("sqlstate", "message", "hint", "detail", "context", "schema_name", "constraint_name")
