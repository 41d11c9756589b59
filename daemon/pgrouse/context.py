"""What a handler can know and do besides its payload."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, cast

import structlog
from pydantic_core import from_json

from pgrouse.errors import LockLost
from pgrouse.message import Message
from pgrouse.transaction import Transaction

if TYPE_CHECKING:
    from pgrouse.scene import Scene


class Context:
    """The second argument of a handler.

    Attributes:
        output: what `transaction()` stores as the message's output. A handler without one just returns it.
    """

    __slots__ = ("_message", "_scene", "_since", "completed", "output")

    def __init__(self, message: Message, scene: Scene) -> None:
        self._message = message
        self._scene = scene
        self._since = time.monotonic()
        self.output: Any = None
        self.completed = False

    @property
    def id(self) -> int:
        """The message's id."""
        return self._message.id

    @property
    def topic(self) -> str:
        """Its topic."""
        return self._message.topic

    @property
    def channel(self) -> str | None:
        """Its channel, or None."""
        return self._message.channel

    @property
    def key(self) -> str | None:
        """Its key, or None."""
        return self._message.key

    @property
    def attempt(self) -> int:
        """1 for the first; counted when the message is claimed."""
        return self._message.attempt

    @property
    def max_attempts(self) -> int | None:
        """How many attempts there may be; None = no limit."""
        return self._message.max_attempts

    @property
    def waited_s(self) -> float:
        """How long it had been ready when it was claimed."""
        return self._message.waited_s

    @property
    def headers(self) -> dict[str, Any]:
        """What the publisher sent along; empty if nothing."""
        return cast("dict[str, Any]", from_json(self._message.headers)) if self._message.headers else {}

    @property
    def state(self) -> Any:
        """The checkpoint that an earlier attempt left with `Retry` or `Defer`; None if there is none."""
        return None if self._message.state is None else from_json(self._message.state)

    @property
    def time_left_s(self) -> float | None:
        """How long the handler may still run before its run_timeout ends it; None = as long as it takes."""
        limit = self._message.run_timeout_s
        return None if limit is None else max(0.0, self._since + limit - time.monotonic())

    @property
    def stopping(self) -> bool:
        """Whether the daemon wants to stop. A long handler does well to look, and to `Defer` with its state."""
        return self._scene.stopping

    @property
    def lost(self) -> bool:
        """Whether the message is not this worker's any more: it was cancelled, overran its time, or its lock expired."""
        return not self.completed and not self._scene.holds(self._message)

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """A logger that names the message."""
        return cast(
            "structlog.stdlib.BoundLogger",
            structlog.get_logger().bind(message_id=self.id, topic=self.topic, attempt=self.attempt),
        )

    def heartbeat(self) -> None:
        """Make sure that the message is still this worker's. Locks are extended without this; it is a place to stop at.

        Raises:
            LockLost: it is not.
        """
        if self.lost:
            raise LockLost(f"message {self.id} is not this worker's any more: stop working on it")

    def transaction(self) -> Transaction:
        """Open a transaction that also completes the message: `[async] with ctx.transaction() as conn`.

        Everything done on `conn` and the completion commit together when the block ends, or not at all: effects in this database
        happen exactly once. Set `ctx.output` before the block ends to keep an output. In an async handler use `async with`.

        Raises:
            LockLost: at the end of the block, if the message is not this worker's any more; everything was rolled back.
        """
        return Transaction(self, self._message, self._scene)
