"""Every error of pgrouse. Each states what is wrong, where, and how to fix it; `exit_code` is what the command line ends with."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """How a command of pgrouse ends."""

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


class SchemaMismatch(PgrouseError):
    """The database's schema is not the one that this version works with."""

    exit_code = ExitCode.BAD_CONFIG


class MigrationEdited(PgrouseError):
    """A migration that was applied has another text now."""

    exit_code = ExitCode.BAD_CONFIG


class InvalidMessage(PgrouseError, ValueError):
    """A message cannot be published as it is; nothing was inserted."""


class InvalidPayload(InvalidMessage):
    """The payload does not fit the payload_schema of its topic; `problems` lists why, without the values."""

    def __init__(self, topic: str, problems: list[str]) -> None:
        super().__init__(f"the payload does not fit the payload_schema of topic {topic}: {'; '.join(problems)}")
        self.problems = problems


class PublishRejected(PgrouseError):
    """The policy of its topic does not admit a message. The statement has failed: roll back, at least to a savepoint.

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
    """The policy of the topic is not to accept publishes."""

    sqlstate = "PGR03"


class PayloadTooLarge(PublishRejected):
    """The payload or body has more than the topic's `max_payload_bytes`."""

    sqlstate = "PGR04"


class TopicReserved(PublishRejected):
    """Names that end with `.dlq` are those of dead letters."""

    sqlstate = "PGR05"


class PredecessorNotFound(PublishRejected):
    """One of the messages that it should come after is not there: never published, or nothing of it is kept."""

    sqlstate = "PGR08"


class KeyTaken(PublishRejected):
    """A message with this key waits, or holds the key by the topic's `key_ttl`."""

    sqlstate = "23505"


class PublishConflict(PublishRejected):
    """Another transaction publishes, claims or ends what this one needs, and PostgreSQL ended this one: repeat the whole transaction.

    The `sqlstate` of its `__cause__` is 40P01 (a deadlock: two transactions took the same keys in different orders), or 40001 (above READ
    COMMITTED only: what this transaction has to see was committed after it began).
    """

    exit_code = ExitCode.TRY_AGAIN


class LockLost(PgrouseError):
    """The message is not this worker's any more: its lock expired, or it was cancelled. What was settled was not changed."""


class InvalidStep(PgrouseError, ValueError):
    """A step cannot be kept: its result is not JSON or too large, or its name is used twice. Its function may have run."""


class MessageNotFound(PgrouseError, LookupError):
    """There is no such message: it was never published, or ended and nothing of it is kept."""


class RequestRefused(PgrouseError):
    """The server refused what a Client asked for. The error of psycopg is its `__cause__`.

    Attributes:
        sqlstate: its code; None if it has none.
    """

    def __init__(self, text: str, sqlstate: str | None = None) -> None:
        super().__init__(text)
        self.sqlstate = sqlstate


class InvalidSetting(PgrouseError, ValueError):
    """A setting of a policy that there is not, or a value that it cannot have."""


class ResultForbidden(PgrouseError, PermissionError):
    """This role may not know how the message ended: it did not publish it (or not all of it), or not with `expect_result`."""


class EncryptionKeyMissing(PgrouseError):
    """Something is encrypted by a key that is not configured here; `key` is its name."""

    exit_code = ExitCode.BAD_CONFIG

    def __init__(self, key: str, *, is_another: bool = False) -> None:
        why = "is not the one that is configured here under this name" if is_another else "is not configured here"
        super().__init__(f"key {key} {why}")
        self.key = key


class DecryptionFailed(PgrouseError):
    """What was encrypted is not what is there: it was changed, cut, or put where it does not belong."""
