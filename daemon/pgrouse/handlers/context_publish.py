"""A message that a handler publishes: in the transaction of `ctx.transaction()` if that is open, else in one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import AsyncConnection, AsyncCursor

from pgrouse.handlers.event_loop import is_on_event_loop
from pgrouse.handlers.publish_tracker import PublishTracker
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.publishing.drivers.connection_types import AsyncPsycopgConnection, PsycopgConnection
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

    def publish(
        self, conn: AsyncPsycopgConnection | PsycopgConnection | None, tracker: PublishTracker
    ) -> Published | TrackedCoroutine[Published]:
        """Publish it on an open connection, else on one of the pools; something to await on the event loop, which the handler has tracker to.

        Raises:
            RuntimeError: the open connection is async and the caller is not, or the reverse.
        """
        published = self._publish(conn)
        return tracker.track(published) if isinstance(published, TrackedCoroutine) else published

    def _publish(
        self, conn: AsyncPsycopgConnection | PsycopgConnection | None
    ) -> Published | TrackedCoroutine[Published]:
        if conn is not None:
            _check_same_kind(conn)
            published: Published | TrackedCoroutine[Published] = self._on(conn)
            return published
        return TrackedCoroutine(self._publish_async(), self._topic) if is_on_event_loop() else self._publish_blocking()

    def _on(self, conn: Any) -> Any:
        cipher = self._runtime.encryption.cipher
        return publish(conn, self._topic, self._payload, cipher=cipher, **self._options)

    async def _publish_async(self) -> Published:
        async with self._runtime.pool.connection() as conn:
            published: Published = await self._on(conn)
            return published

    def _publish_blocking(self) -> Published:
        with self._runtime.blocking_pool.connection() as conn:
            published: Published = self._on(conn)
            return published


def _check_same_kind(conn: object) -> None:
    if isinstance(conn, AsyncConnection | AsyncCursor) != is_on_event_loop():
        raise RuntimeError("ctx.publish inside of ctx.transaction(): call it where the transaction was opened")
