"""The options with which `consume` processes messages.

The driver, the executors and the process of locks share them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum

from pgrouse.errors import ConfigError

SHORTEST_LOCK = timedelta(seconds=1)
LONGEST_LOCK = timedelta(days=7)


class OnError(StrEnum):
    """What happens to a batch for which the function raised an exception."""

    BISECT = "bisect"
    RELEASE = "release"


@dataclass(frozen=True)
class ConsumerOptions:
    """The options of a consumer.

    Attributes:
        consumer: its name among the workers; only one process may use it at a time.
        topics: the topics whose messages it processes.
        dsn: a connection string or URI of libpq; None = its environment.
        rows: the maximum number of messages in one batch.
        max_bytes: the approximate maximum size of the payloads of a batch; 0 = no limit.
        lock: how long a message is locked; None = the topic's lock_duration.
        available_now: whether it ends after as many messages as are ready when it begins.
        interval_s: how often it looks for messages.
        max_failed_batches: it ends after this many consecutive failed batches.
        on_error: what happens to a batch for which the function raises an exception.
        allow_single_attempt: also process topics with `max_attempts` 1: if the machine fails, the messages that it
            holds are dead.
    """

    consumer: str
    topics: tuple[str, ...]
    dsn: str | None = field(default=None, repr=False)
    rows: int = 10_000
    max_bytes: int = 0
    lock: timedelta | None = None
    available_now: bool = False
    interval_s: float = 1.0
    max_failed_batches: int = 3
    on_error: OnError = OnError.BISECT
    allow_single_attempt: bool = False

    def __post_init__(self) -> None:
        """Check them.

        Raises:
            ConfigError: a value is not allowed.
        """
        if isinstance(self.topics, str) or not self.topics or not all(self.topics):
            raise ConfigError(f"topics must be a tuple of names, found {self.topics!r}")
        if self.lock is not None and not SHORTEST_LOCK <= self.lock <= LONGEST_LOCK:
            raise ConfigError(f"lock must be between 1s and 7d, found {self.lock}")
        least = {"rows": self.rows, "max_failed_batches": self.max_failed_batches, "interval": self.interval_s}
        for name, value in least.items():
            if value <= 0:
                raise ConfigError(f"{name} must be more than 0, found {value}")
