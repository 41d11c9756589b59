"""The facts about a handler that are known before its first message.

A handler takes up to two arguments: the payload, then a context. The payload's annotation, if there is one, is the type
that pydantic validates the payload against. A payload that does not match is rejected with the list of errors. A
`bytes` payload is the message's body.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pydantic
from pydantic import TypeAdapter
from pydantic_core import from_json

from pgrouse.client.message import Message
from pgrouse.handlers.ack_rules import DEFAULT_ACK_RULES, AckRules
from pgrouse.handlers.outcome import Reject
from pgrouse.handlers.validation import list_problems


class ExecutionMode(Enum):
    """Where a handler runs."""

    ASYNC = "async"  # on the event loop
    THREAD = "thread"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class BatchOptions:
    """How the messages of a batch handler are gathered.

    Attributes:
        size: how many messages a batch has at most.
        wait_s: how long the first message waits for more; 0 = not at all.
        as_items: whether the handler takes `Item`s rather than payloads.
    """

    size: int
    wait_s: float
    as_items: bool


@dataclass(frozen=True)
class Handler:
    """The handler of one topic.

    Attributes:
        topic: its topic.
        name: its name in the configuration: `module:function`.
        function: the function.
        mode: where it runs.
        arguments: how many of payload and context it takes.
        payload: the type that its payload is validated against; None = any JSON.
        concurrency: how many may run at once in this process; None = as many as the worker's.
        rules: how its attempts end.
        batch_options: how its messages are gathered; None if it does not take lists.
        is_async: whether the function is async, wherever it runs.
        log_bytes: how many bytes of the log lines of each attempt are kept; 0 = none.
    """

    topic: str
    name: str
    function: Callable[..., Any]
    mode: ExecutionMode
    arguments: int
    payload: TypeAdapter[Any] | None
    concurrency: int | None = None
    rules: AckRules = DEFAULT_ACK_RULES
    batch_options: BatchOptions | None = None
    is_async: bool = False
    log_bytes: int = 0

    def decode(self, message: Message) -> Any:
        """Return the message's payload as the handler wants it.

        Raises:
            Reject: it cannot be decoded, or does not match.
        """
        try:
            if self.payload is None:
                return message.body if message.payload is None else from_json(message.payload)
            if message.payload is None:
                return self.payload.validate_python(message.body)
            return self.payload.validate_json(message.payload)
        except pydantic.ValidationError as error:
            raise Reject(f"payload: {list_problems(error)}") from None
        except (ValueError, RecursionError) as error:
            raise Reject(f"payload cannot be decoded: {error}") from None
