"""The properties of a message that handlers can read in addition to its payload."""

from __future__ import annotations

from typing import Any, cast

from pydantic_core import from_json

from pgrouse.client.message import Message


class MessageView:
    """A message as its handler sees it: a `Context` of one message, an `Item` of a batch."""

    __slots__ = ("_message",)

    _message: Message

    @property
    def id(self) -> int:
        """The message's id."""
        return self._message.id

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
        """The number of this attempt, from 1; counted when the message is claimed."""
        return self._message.attempt

    @property
    def runs(self) -> int:
        """How many times a handler started on it, this time included.

        A deferral takes back the attempt, but not the run.
        """
        return self._message.runs

    @property
    def max_attempts(self) -> int | None:
        """How many attempts are allowed; None = no limit."""
        return self._message.max_attempts

    @property
    def batch_id(self) -> int | None:
        """The batch in which it counts, or None: `ctx.publish(..., batch=ctx.batch_id)` adds to it."""
        return self._message.batch_id

    @property
    def headers(self) -> dict[str, Any]:
        """The headers from the publisher; empty if there are none."""
        return cast("dict[str, Any]", from_json(self._message.headers)) if self._message.headers else {}

    @property
    def state(self) -> Any:
        """The checkpoint that an earlier attempt left with `Retry` or `Defer`; None if there is none."""
        return None if self._message.state is None else from_json(self._message.state)
