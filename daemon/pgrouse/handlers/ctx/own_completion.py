"""The completion of a handler's messages in the handler's own transaction, on any connection that `publish` takes.

The transaction ends later, and the worker does not see how: see `pgrouse.worker.execution.completion_check`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pgrouse.client.call import bigints
from pgrouse.client.calls.processing.settle import COMPLETE_BY_TEXTS
from pgrouse.client.message import claim_refs
from pgrouse.handlers.ctx.publish_tracker import PublishTracker
from pgrouse.handlers.ctx.transaction import Completion
from pgrouse.handlers.runtime import HandlerRuntime
from pgrouse.publishing.drivers import driver_of
from pgrouse.publishing.drivers.driver import Driver
from pgrouse.publishing.server_errors import sqlstate_of
from pgrouse.publishing.statement import Statement
from pgrouse.publishing.tracked_coroutine import TrackedCoroutine

NO_RIGHT = "42501"
GRANT = (
    "ctx.complete() completes the message by messages.complete, with the rights of this connection's role: "
    "GRANT messages_worker TO this role, or give ctx.complete() a connection of a role that has it"
)


class NotCommitted(RuntimeError):
    """A handler has completed its message in a transaction that was not committed."""

    def __init__(self) -> None:
        super().__init__("ctx.complete() was called, and its transaction was not committed")


class OwnCompletion:
    """One call of `ctx.complete()`.

    Args:
        completion: what the call completes.
        topic: the topic of the messages.
        on_begin: called before the messages are completed.
    """

    def __init__(
        self, completion: Completion, topic: str, runtime: HandlerRuntime, on_begin: Callable[[], None]
    ) -> None:
        self._completion, self._topic, self._runtime, self._on_begin = completion, topic, runtime, on_begin

    def run(self, conn: Any, tracker: PublishTracker) -> TrackedCoroutine[None] | None:
        """Complete the messages on a connection; on an async connection return an awaitable.

        Raises:
            TypeError: the connection is of no known kind.
            RuntimeError: they cannot be completed in this way.
        """
        self._completion.check_open()
        driver = driver_of(conn, "ctx.complete")
        if not driver.is_async:
            driver.run(self._complete(driver))
            return None
        return tracker.track(TrackedCoroutine(self._complete(driver), self._topic, "complete"))

    async def _complete(self, driver: Driver) -> None:
        statement = Statement(COMPLETE_BY_TEXTS, self._values())
        # Call this before the statement is sent: after that, only the server knows.
        self._on_begin()
        self._runtime.mark_completing(*self._completion.messages())
        try:
            found = await driver.fetch_row(statement)
        except Exception as error:
            if sqlstate_of(error) == NO_RIGHT:
                error.add_note(driver.schema.text(GRANT))
            raise
        self._completion.check(json.loads(found[0]) if found else [], "roll the transaction back")

    def _values(self) -> dict[str, Any]:
        ids, claim_ids = claim_refs(self._completion.messages())
        outputs = json.dumps(self._completion.outputs())
        return {"ids": bigints(ids), "claim_ids": bigints(claim_ids), "outputs": outputs}
