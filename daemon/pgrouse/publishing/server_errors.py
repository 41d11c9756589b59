"""Translates errors of the server on publishing, from any driver, to errors of pgrouse."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from pgrouse.database import schema_name
from pgrouse.database.schema_name import SchemaName
from pgrouse.errors import (
    BatchClosed,
    KeyTaken,
    PayloadTooLarge,
    PgrouseError,
    PredecessorNotFound,
    PublishConflict,
    PublishRateExceeded,
    SchemaMismatch,
    TopicClosed,
    TopicFull,
    TopicReserved,
)

ERROR_CLASSES = (
    TopicFull,
    PublishRateExceeded,
    TopicClosed,
    PayloadTooLarge,
    TopicReserved,
    PredecessorNotFound,
    BatchClosed,
)
KEY_CONSTRAINTS = ("message_key", "held_key_pkey")
DEADLOCK = "40P01"
CONFLICTS = {
    DEADLOCK: "another transaction took the same keys in another order: repeat the transaction, "
    "or publish keys in one order everywhere",
    "40001": "another transaction changed this key or limit after this one began: "
    "repeat the transaction, or use READ COMMITTED",
}
# The table, schema or function does not exist.
NOT_INSTALLED = ("42P01", "3F000", "42883")
FORBIDDEN = "42501"
HIDDEN = re.compile(r"row-level security policy\b.* \"message")
# Translations of the server keep these words and their order.
TOPIC_AND_KEY = re.compile(r"\(topic, key\)=\(([^,]+), (.*)\)", re.DOTALL)
COPY_LINE = re.compile(r"COPY message, \S+ (\d+)")


class ServerError(NamedTuple):
    """The fields of a server's error."""

    sqlstate: str | None
    text: str
    hint: str | None
    detail: str | None
    context: str | None
    schema: str | None
    constraint: str | None

    @property
    def line(self) -> int | None:
        """The line of the COPY that the error is about."""
        found = COPY_LINE.search(self.context or "")
        return int(found[1]) if found else None


TopicAndKey = tuple[str, str | None]


class ErrorTranslation:
    """A block that raises refusals of a publish as errors of pgrouse, with the driver's error as their cause.

    Other errors pass unchanged.

    A policy of the topic raises PublishRejected, and a missing schema raises SchemaMismatch.

    It is not a `contextmanager`: every publish enters it, and a generator would take longer than the rest of the check.

    Args:
        find_key: returns topic and key of the message, if they are known.
        schema: where the queue is.
    """

    __slots__ = ("_find_key", "_schema")

    def __init__(
        self, find_key: Callable[[ServerError], TopicAndKey | None], schema: SchemaName = schema_name.DEFAULT
    ) -> None:
        self._find_key, self._schema = find_key, schema

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        answer = _server_error(error) if isinstance(error, Exception) else None
        refused = None if answer is None else _translated(answer, self._find_key, self._schema.name)
        if refused is not None:
            raise refused from error


def sqlstate_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of this error, or of the server error that caused it; None if there is none."""
    answer = _server_error(error)
    return None if answer is None else answer.sqlstate


def _translated(
    answer: ServerError, find_key: Callable[[ServerError], TopicAndKey | None], schema: str
) -> PgrouseError | None:
    text = ": ".join(filter(None, [answer.text, answer.hint]))
    for kind in ERROR_CLASSES:
        if answer.sqlstate == kind.sqlstate:
            return kind(text)
    if answer.sqlstate == KeyTaken.sqlstate and answer.constraint in KEY_CONSTRAINTS and answer.schema == schema:
        return KeyTaken(text if answer.hint else _key_taken(_key_in_detail(answer) or find_key(answer)))
    if answer.sqlstate in CONFLICTS:
        return PublishConflict(f"{CONFLICTS[answer.sqlstate]} ({answer.text})")
    if answer.sqlstate in NOT_INSTALLED and re.search(rf"(?<!\w){re.escape(schema)}(?!\w)", answer.text):
        return SchemaMismatch(
            f"the schema of this database is missing or older than this version: run `pgrouse migrate` ({answer.text})"
        )
    if answer.sqlstate == FORBIDDEN and HIDDEN.search(answer.text):
        return SchemaMismatch(
            "row-level security is on for messages.message, where it hides rows of the queue: run `pgrouse migrate`, "
            f"which switches it off ({answer.text})"
        )
    return None


def _key_taken(find_key: TopicAndKey | None) -> str:
    if find_key is None:
        return "a message with this key waits already: nothing was published"
    topic, key = find_key
    return f"a message of topic {topic} with the key {key!r} waits already: nothing was published"


def _key_in_detail(answer: ServerError) -> TopicAndKey | None:
    """Return the key in the detail, which only roles that may read keys get."""
    found = TOPIC_AND_KEY.search(answer.detail or "")
    return (found[1], found[2]) if found else None


def _server_error(error: BaseException | None) -> ServerError | None:
    """Find the server's error; SQLAlchemy and Django raise their own errors because of the driver's."""
    while error is not None:
        if (diag := getattr(error, "diag", None)) is not None:  # psycopg
            return ServerError(
                diag.sqlstate,
                diag.message_primary or "",
                diag.message_hint,
                diag.message_detail,
                diag.context,
                diag.schema_name,
                diag.constraint_name,
            )
        if hasattr(error, "constraint_name"):  # asyncpg
            return ServerError(*(getattr(error, name, None) for name in ASYNCPG_FIELDS))  # type: ignore[arg-type]
        if error.args and isinstance(error.args[0], dict):  # pg8000: the protocol's fields, by their letters
            return ServerError(*(error.args[0].get(letter) for letter in "CMHDWsn"))  # type: ignore[arg-type]
        error = error.__cause__
    return None


ASYNCPG_FIELDS = ("sqlstate", "message", "hint", "detail", "context", "schema_name", "constraint_name")
