"""Publishes a message for a handler.

It is published in the transaction of `ctx.transaction()` if that is open, otherwise in a separate transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from psycopg import AsyncConnection, Connection

from pgrouse.handlers.ctx.publish_tracker import PublishTracker
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.publishing.new_message import PublishOptions
from pgrouse.publishing.publish import publish
from pgrouse.publishing.published import Published
from pgrouse.publishing.tracked_coroutine import TrackedCoroutine
from pgrouse.telemetry import trace_context


class ContextPublish:
    """One message to publish.

    Args:
        runtime: its connections publish the message, and its keys encrypt it.
        headers: the headers of the message that is processed: the new message joins its trace.
        topic: the topic of the new message; payload and options are those of `publish`.
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
        """Publish it on the given open connection, or on a connection of the pool."""
        if conn is not None:
            return cast("Published", self._on(conn))
        with self._runtime.blocking_pool.connection() as own:
            return cast("Published", self._on(own))

    def publish_async(
        self, connection: Callable[[], AsyncConnection[Any] | None], tracker: PublishTracker
    ) -> TrackedCoroutine[Published]:
        """Do the same with an await.

        connection returns the open connection at that time; tracker checks that it is awaited.
        """
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
