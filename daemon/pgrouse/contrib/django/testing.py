"""For the tests of a project: run what was enqueued and published, within the test."""

from __future__ import annotations

from dataclasses import replace

from asgiref.sync import async_to_sync

from pgrouse.contrib.django import project
from pgrouse.handlers.declaration.discovery import with_declared
from pgrouse.handlers.declaration.loader import load
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.testing import Attempt, drain


def run_tasks(*, limit: int = 1000) -> list[Attempt]:
    """Run the waiting tasks, and the handlers of the project's other topics, until none is ready.

    Return all attempts in their order.

    It happens in this thread and on Django's connection, so in the transaction of a TestCase; policies, retries and the
    archive are the real ones.

    Args:
        limit: the maximum number of attempts.

    Raises:
        RuntimeError: there is more to do after `limit` attempts.
    """
    handlers = {topic: _in_this_thread(each) for topic, each in load(with_declared(project.load_config())).items()}
    attempts: list[Attempt] = drain(project.connection(), handlers, limit=limit)
    return attempts


def _in_this_thread(handler: Handler) -> Handler:
    """Return a handler whose database work stays on the connection of this thread.

    A coroutine would use another connection for it.
    """
    if handler.mode is not ExecutionMode.ASYNC:
        return handler
    return replace(handler, mode=ExecutionMode.THREAD, is_async=False, function=async_to_sync(handler.function))
