"""A message that a handler publishes: in the transaction of `ctx.transaction()` if that is open, else in one of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection, AsyncCursor

from pgrouse.publishing import publish as publishing

from pgrouse.publishing import trace_context
from pgrouse.handlers.context import is_on_a_loop
from pgrouse.publishing.new_message import Options
from pgrouse.handlers.publish_tracker import Pending, Promised

if TYPE_CHECKING:
    from pgrouse.publishing.drivers.connection_types import OfAsyncPsycopg, OfPsycopg
    from pgrouse.publishing.publish import Published
    from pgrouse.worker.daemon_runtime import Scene


class FollowUp:
    """One message to publish.

    Args:
        scene: whose connections it goes through, and whose keys encrypt it.
        headers: of the message that is worked: its trace goes on.
        topic: of the new one; payload and options as of `publish`.
    """

    def __init__(self, scene: Scene, headers: Mapping[str, Any], topic: str, payload: Any, options: Options) -> None:
        self._scene, self._topic, self._payload = scene, topic, payload
        self._options = options
        inherited, given = trace_context.inherited(headers), options.get("headers")
        if inherited and (given is None or isinstance(given, Mapping)):
            self._options = {**options, "headers": {**inherited, **(given or {})}}

    def publish(self, conn: OfAsyncPsycopg | OfPsycopg | None, promised: Promised) -> Published | Pending[Published]:
        """Publish it on an open connection, else on one of the pools; something to await on the event loop, which the handler has promised to.

        Raises:
            RuntimeError: the open connection is of the other kind than is wanted here: nobody would await what it gives, or nobody could.
        """
        published = self._publish(conn)
        return promised.watch(published) if isinstance(published, Pending) else published

    def _publish(self, conn: OfAsyncPsycopg | OfPsycopg | None) -> Published | Pending[Published]:
        if conn is not None:
            _refuse_elsewhere(conn)
            published: Published | Pending[Published] = self._on(conn)
            return published
        return Pending(self._on_the_loop(), self._topic) if is_on_a_loop() else self._in_a_thread()

    def _on(self, conn: Any) -> Any:
        cipher = None if self._scene.seals is None else self._scene.seals.cipher
        return publishing.publish(conn, self._topic, self._payload, cipher=cipher, **self._options)

    async def _on_the_loop(self) -> Published:
        async with self._scene.pool.connection() as conn:
            published: Published = await self._on(conn)
            return published

    def _in_a_thread(self) -> Published:
        with self._scene.blocking_pool.connection() as conn:
            published: Published = self._on(conn)
            return published


def _refuse_elsewhere(conn: object) -> None:
    if isinstance(conn, AsyncConnection | AsyncCursor) != is_on_a_loop():
        raise RuntimeError("ctx.publish inside of ctx.transaction(): call it where the transaction was opened")
