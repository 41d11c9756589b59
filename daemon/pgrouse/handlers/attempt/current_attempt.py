"""The messages that the running handler processes, for log lines.

These are lines of the handler, of libraries, and of the threads and tasks that it starts.

Setting it costs a few dozen nanoseconds for each call of a handler; the fields are looked up only when a line is
logged.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final

from pgrouse.client.message import Message
from pgrouse.telemetry import trace_context

_messages: Final[ContextVar[Sequence[Message]]] = ContextVar("pgrouse_messages", default=())

# Call this with the messages before their handler runs, in the context of their attempt.
set_messages: Final = _messages.set


def current_topic() -> str:
    """Return the topic of the first message of the handler that runs."""
    return _messages.get()[0].topic


def log_keys() -> dict[str, Any]:
    """Return the fields of a log line about the messages whose handler runs; empty outside of handlers."""
    messages = _messages.get()
    if not messages:
        return {}
    first = messages[0]
    if len(messages) > 1:
        return {"topic": first.topic, "messages": len(messages), **trace_context.log_keys()}
    return {"message_id": first.id, "topic": first.topic, "attempt": first.attempt, **trace_context.log_keys()}
