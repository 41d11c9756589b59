"""A message that a handler publishes: in the transaction of `ctx.transaction()` if that is open, else in one of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from psycopg import AsyncConnection, Connection

from pgrouse.handlers.publish_tracker import PublishTracker
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.publishing.new_message import PublishOptions
from pgrouse.publishing.publish import publish
from pgrouse.publishing.published import Published
from pgrouse.publishing.tracked_coroutine import TrackedCoroutine
from pgrouse.telemetry import trace_context


class ContextPublish:
    """One message to publish.

    Args:
        runtime: whose connections it goes through, and whose keys encrypt it.
        headers: of the message that is worked: its trace goes on.
        topic: of the new one; payload and options as of `publish`.
    """

    def __init__(
        self, runtime: HandlerRuntime, headers: Mapping[str, Any], topic: str, payload: Any, options: PublishOptions
    ) -> None:
        self._runtime, self._topic, self._payload = runtime, topic, payload
        self._options = options
        inherited, given = trace_context.inherited(headers), options.get("headers")
        if inherited and (given is None or isinstance(given, Mapping)):
            self._options = {**options, "headers": {**inherited, **(given or {})}}

    def publish(self, conn: Connection[Any] | None) -> Published:
        """Publish it on an open connection, else on one of the pool."""
        if conn is not None:
            return cast("Published", self._on(conn))
        with self._runtime.blocking_pool.connection() as own:
            return cast("Published", self._on(own))

    def publish_async(
        self, connection: Callable[[], AsyncConnection[Any] | None], tracker: PublishTracker
    ) -> TrackedCoroutine[Published]:
        """The same, to be awaited: connection returns the open one then, and tracker knows whether it is awaited."""
        return tracker.track(TrackedCoroutine(self._publish_async(connection, tracker), self._topic))

    async def _publish_async(
        self, connection: Callable[[], AsyncConnection[Any] | None], tracker: PublishTracker
    ) -> Published:
        if (conn := connection()) is not None:
            with tracker.calls.add(conn):
                return cast("Published", await self._on(conn))
        async with self._runtime.pool.connection() as own:
            return cast("Published", await self._on(own))

    def _on(self, conn: Any) -> Any:
        cipher = self._runtime.encryption.cipher
        return publish(conn, self._topic, self._payload, cipher=cipher, **self._options)
