"""Every error of pgrouse.

Each states what is wrong, where, and how to fix it; `exit_code` is the exit code of the command line.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pgrouse.client.waiting.message_result import MessageResult


class ExitCode(IntEnum):
    """The exit codes of the commands."""

    OK = 0
    FOUND_A_PROBLEM = 1
    USAGE = 2
    LAG_EXCEEDED = 3
    DATABASE_UNREACHABLE = 69
    TRY_AGAIN = 75
    BAD_CONFIG = 78
    INTERRUPTED = 130


class PgrouseError(Exception):
    """Base of every error that pgrouse raises on purpose."""

    exit_code = ExitCode.FOUND_A_PROBLEM


class ConfigError(PgrouseError):
    """The configuration cannot be used."""

    exit_code = ExitCode.BAD_CONFIG


class LifespanFailed(PgrouseError):
    """The lifespan of the handlers did not start."""


class DatabaseUnreachable(PgrouseError):
    """No connection to PostgreSQL could be made."""

    exit_code = ExitCode.DATABASE_UNREACHABLE


class ForkedProcess(PgrouseError, RuntimeError):
    """Something is used that belongs to another process: this process is a fork of the one that opened it."""


class SchemaMismatch(PgrouseError):
    """The database's schema has another version than this program."""

    exit_code = ExitCode.BAD_CONFIG


class MigrationEdited(PgrouseError):
    """A migration that was applied has another text now."""

    exit_code = ExitCode.BAD_CONFIG


class InvalidMessage(PgrouseError, ValueError):
    """A message cannot be published as it is; nothing was inserted."""


class InvalidPayload(InvalidMessage):
    """The payload does not match the payload_schema of its topic; `problems` lists why, without the values."""

    def __init__(self, topic: str, problems: list[str]) -> None:
        super().__init__(f"the payload does not fit the payload_schema of topic {topic}: {'; '.join(problems)}")
        self.problems = problems


class PublishRejected(PgrouseError):
    """A policy of its topic forbids a message. The statement has failed: roll back, at least to a savepoint.

    The error of PostgreSQL is its `__cause__`; `sqlstate` identifies its kind in any language.
    """

    sqlstate = ""


class TopicFull(PublishRejected):
    """The topic holds `max_depth` messages, or would hold more with these."""

    sqlstate = "PGR01"
    exit_code = ExitCode.TRY_AGAIN


class PublishRateExceeded(PublishRejected):
    """The topic's `publish_rate` is used up; the text says when to try again."""

    sqlstate = "PGR02"
    exit_code = ExitCode.TRY_AGAIN


class TopicClosed(PublishRejected):
    """The policy of the topic forbids publishes."""

    sqlstate = "PGR03"


class PayloadTooLarge(PublishRejected):
    """The payload or body has more than the topic's `max_payload_bytes`."""

    sqlstate = "PGR04"


class TopicReserved(PublishRejected):
    """Names that end with `.dlq` are reserved for dead letters."""

    sqlstate = "PGR05"


class PredecessorNotFound(PublishRejected):
    """One of the messages in `after` does not exist: it was never published, or is no longer kept."""

    sqlstate = "PGR08"


class BatchClosed(PublishRejected):
    """The batch accepts no messages: it was closed, finished or cancelled, or there is none with this id."""

    sqlstate = "PGR09"


class KeyTaken(PublishRejected):
    """A message with this key waits, or still holds the key because of the topic's `key_ttl`."""

    sqlstate = "23505"


class PublishConflict(PublishRejected):
    """Another transaction publishes, claims or ends the same messages, and PostgreSQL ended this transaction.

    Repeat the whole transaction.

    The `sqlstate` of its `__cause__` is 40P01 (a deadlock: two transactions took the same keys in different orders), or
    40001 (only with isolation above READ COMMITTED: this transaction must see a change that was committed after it
    began).
    """

    exit_code = ExitCode.TRY_AGAIN


class LockLost(PgrouseError):
    """This worker no longer holds the message: its lock expired, or it was cancelled.

    A settlement of it changed nothing.
    """


class InvalidStep(PgrouseError, ValueError):
    """A step cannot be kept: its result is not JSON or too large, or its name is used twice.

    Its function may have run.
    """


class InvalidEvent(PgrouseError, ValueError):
    """The name of an event cannot be one, or its payload does not fit the type that its handler wants."""


class EventTimeout(PgrouseError, TimeoutError):
    """The event for which a handler waits did not come in time. Later attempts of the message get it again."""


class MessageNotFound(PgrouseError, LookupError):
    """There is no such message: it was never published, or it has ended and is no longer kept."""


class BatchNotFound(PgrouseError, LookupError):
    """There is no such batch: it was never created, its retention is over, or another role created it."""


class RequestRefused(PgrouseError):
    """The server refused the request of a Client. The error of psycopg is its `__cause__`.

    Attributes:
        sqlstate: the SQLSTATE; None if there is none.
    """

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


class InvalidSetting(PgrouseError, ValueError):
    """A policy has no such setting, or the setting cannot have this value."""


class ResultForbidden(PgrouseError, PermissionError):
    """This role may not know how the message ended.

    It did not publish it (or not all of it), or not with `expect_result`.
    """


class MessageUnsuccessful(PgrouseError):
    """The message whose result is wanted ended without success, so that there is none.

    Attributes:
        ended: how it ended.
    """

    def __init__(self, text: str, ended: MessageResult) -> None:
        super().__init__(text)
        self.ended = ended

    def __reduce__(self) -> tuple[type[MessageUnsuccessful], tuple[str, MessageResult]]:
        return type(self), (str(self), self.ended)


class InvalidResult(PgrouseError, ValueError):
    """What is kept of a message's result does not fit the annotation of its handler."""


class EncryptionKeyMissing(PgrouseError):
    """Something is encrypted with a key that is not configured here; `key` is its name."""

    exit_code = ExitCode.BAD_CONFIG

    def __init__(self, key: str, *, is_another: bool = False) -> None:
        why = "is not the one that is configured here under this name" if is_another else "is not configured here"
        super().__init__(f"key {key} {why}")
        self.key = key


class DecryptionFailed(PgrouseError):
    """The encrypted data is not what was encrypted: it was changed, cut, or moved to another place."""
