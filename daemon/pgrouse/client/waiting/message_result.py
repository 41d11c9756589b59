"""How a message ended, as those learn of it that wait for it."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic_core import from_json

from pgrouse.client.call import Call, value
from pgrouse.client.calls.processing.wake import StateOfMessage
from pgrouse.config import duration
from pgrouse.config.duration import AnyDuration
from pgrouse.database import schema_name
from pgrouse.errors import MessageNotFound, ResultForbidden

LISTEN, UNLISTEN = b"LISTEN settled", b"UNLISTEN settled"
PROCESS: Call[int] = Call(b"SELECT pg_catalog.pg_backend_pid()", [], value)
# How long a call registers a wait, unless it is repeated: a client that died is soon dropped.
REGISTER_FOR = timedelta(minutes=2)
# When the time of a wait is over, it looks once more. It waits this long for the answer.
LAST_LOOK_S = 5.0


@dataclass(frozen=True, slots=True)
class MessageResult:
    """How a message ended.

    Attributes:
        id: the message.
        result: success, rejected, failed, lock_expired, expired or cancelled.
        output: what its handler returned.
        error: why it is no success.
        attempts: how many there were; None if nothing of the message is kept.
        archived_at: when it ended; None if nothing of it is kept.
    """

    id: int
    result: str
    output: Any = None
    error: str | None = None
    attempts: int | None = None
    archived_at: datetime | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the result is success."""
        return self.result == "success"


class Wait:
    """One wait for the end of a message.

    Args:
        message_id: for whose end.
        timeout: how long at most; None = as long as it takes.

    Attributes:
        deadline: monotonic.
        was_seen: whether the message was there when it was asked for.
    """

    __slots__ = ("deadline", "message_id", "timeout", "was_seen")

    def __init__(self, message_id: int, timeout: AnyDuration | None) -> None:
        self.message_id = int(message_id)
        self.timeout = None if timeout is None else duration.to_timedelta(timeout, "timeout")
        self.deadline = time.monotonic() + (math.inf if self.timeout is None else self.timeout.total_seconds())
        self.was_seen = False

    def left_s(self) -> float:
        """Return how many seconds are left, at least 0."""
        return max(0.0, self.deadline - time.monotonic())

    def bound_s(self) -> float | None:
        """Return after how many seconds the wait must be over, even if the server does not answer; None = never."""
        return None if self.timeout is None else min(self.left_s() + LAST_LOOK_S, threading.TIMEOUT_MAX)

    def expired(self) -> TimeoutError:
        """Return the error of a wait whose time is over."""
        return TimeoutError(f"message {self.message_id} had not ended after {self.timeout}")

    def take(self, row: StateOfMessage) -> MessageResult | None:
        """Take what the server answered; return the result, or None if the message has not ended.

        Raises:
            MessageNotFound: there is no such message.
            ResultForbidden: this role may not know its result.
        """
        match row.state:
            case "waiting" | "ending":
                self.was_seen = True
                return None
            case "ended":
                return _result(row)
            case "forbidden":
                raise ResultForbidden(
                    f"this role may not know how message {row.id} ended: publish it with expect_result=True, "
                    "and as this role, "
                    "without a key to which other roles publish, or grant SELECT (output) "
                    f"ON {schema_name.current().identifier}.message_archive"
                )
            case _ if self.was_seen:
                # Only a success can leave nothing behind.
                return MessageResult(row.id, "success")
        raise MessageNotFound(
            f"there is no message {row.id}: it was never published, its publish is not committed, "
            "or nothing of it is kept"
        )


def _result(row: StateOfMessage) -> MessageResult:
    output = None if row.output is None else from_json(row.output)
    return MessageResult(row.id, str(row.result), output, row.error, row.attempts, row.archived_at)
