"""Workflows as graphs of those of their messages that a caller may see, and what a caller may do to them."""

from __future__ import annotations

from functools import partial
from typing import Any

from pgrouse.client.call import run_async
from pgrouse.client.calls import dead, operate
from pgrouse.client.calls.dead import Redriven
from pgrouse.client.calls.monitoring.state import Workflow, workflow_state
from pgrouse.client.calls.workflow import MAX_MESSAGES, workflow_messages
from pgrouse.client.queries.workflow import workflow_of
from pgrouse.client.workflow_graph import WorkflowGraph
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection
from pgrouse.web.http.problem import Problem


async def read_graph(conn: Connection, caller: Caller, message_id: int) -> WorkflowGraph:
    """Read the workflow of a message.

    Raises:
        Problem: 404, there is none that the caller may see.
    """
    workflow_id = await run_async(conn, workflow_of(message_id))
    if workflow_id is not None:
        messages = await run_async(conn, workflow_messages(workflow_id, caller.topics))
        (workflow,) = await run_async(conn, workflow_state([workflow_id], caller.topics, MAX_MESSAGES))
        if workflow.topic is not None:
            return WorkflowGraph(workflow, messages)
    raise Problem(404, f"message {message_id} is in no workflow", "not_found")


async def read_workflows(conn: Connection, caller: Caller, ids: list[int], state: str | None) -> list[Workflow]:
    """Read those of some workflows of which the caller may see a message, and that are in a state; None = any."""
    found = await run_async(conn, workflow_state(ids, caller.topics))
    return [each for each in found if each.total and state in (None, each.state)]


def live_ids(caller: Caller, graph: WorkflowGraph) -> list[int]:
    """Return the messages of a workflow that the caller may cancel."""
    return graph.live_ids(partial(caller.may, Role.OPERATOR))


def dead_ids(caller: Caller, graph: WorkflowGraph) -> list[int]:
    """Return the messages of a workflow that the caller may redrive."""
    return graph.dead_ids(partial(caller.may, Role.OPERATOR))


async def cancel_live(conn: Connection, caller: Caller, message_id: int, reason: str | None) -> list[int]:
    """Cancel what has not ended of the workflow of a message; return the ids.

    Raises:
        Problem: 404, there is none that the caller may see.
    """
    ids = live_ids(caller, await read_graph(conn, caller, message_id))
    return await run_async(conn, operate.cancel(ids, reason)) if ids else []


async def redrive_dead(conn: Connection, caller: Caller, message_id: int, **how: Any) -> list[Redriven]:
    """Put the dead messages of the workflow of a message back; return what became of each.

    Args:
        conn: in a transaction of the caller.
        caller: who asks.
        message_id: any message of the workflow.
        **how: rate, delay, force.

    Raises:
        Problem: 404, there is none that the caller may see.
    """
    ids = dead_ids(caller, await read_graph(conn, caller, message_id))
    return await run_async(conn, dead.redrive(ids, **how)) if ids else []
