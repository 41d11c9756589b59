"""A workflow as a graph of those of its messages that a caller may see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pgrouse.client.call import run_async
from pgrouse.client.queries.workflow import (
    MAX_MESSAGES,
    Workflow,
    WorkflowMessage,
    find_workflow_messages,
    workflow_of,
)
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection
from pgrouse.web.http.problem import Problem
from pgrouse.web.search.search import DEAD


@dataclass(frozen=True)
class WorkflowGraph:
    """A workflow and its messages.

    Attributes:
        workflow: what became of it.
        messages: in the order in which they were published; one that was redriven is replaced by what it became, and
            `after` names the messages as they are here.
    """

    workflow: Workflow
    messages: list[WorkflowMessage]

    def is_own(self, message: WorkflowMessage) -> bool:
        """Whether a message is of this workflow, and not of another one that it only waits for."""
        return message.workflow_id in (None, self.workflow.id)


async def read_graph(conn: Connection, caller: Caller, message_id: int) -> WorkflowGraph:
    """Read the workflow of a message.

    Raises:
        Problem: 404, there is none that the caller may see.
    """
    workflow_id = await run_async(conn, workflow_of(message_id))
    found = [] if workflow_id is None else await run_async(conn, find_workflow_messages(workflow_id))
    seen = [each for each in found if each.topic is None or caller.sees(each.topic)]
    if workflow_id is None or not any(each.topic for each in seen):
        raise Problem(404, f"message {message_id} is in no workflow", "not_found")
    messages = fold(seen)
    return WorkflowGraph(summarize(workflow_id, messages, is_whole=len(found) < MAX_MESSAGES), messages)


def fold(found: Sequence[WorkflowMessage]) -> list[WorkflowMessage]:
    """Put the message that each redriven one became in its place."""
    by_id = {each.id: each for each in found}

    def latest(message_id: int) -> int:
        while (became := by_id[message_id].redriven_as) in by_id:
            message_id = became
        return message_id

    places = dict.fromkeys(latest(each) for each in sorted(by_id))
    return [
        replace(each, after=list(dict.fromkeys(latest(before) for before in each.after or () if before in by_id)))
        for each in map(by_id.__getitem__, places)
    ]


def summarize(workflow_id: int, messages: Sequence[WorkflowMessage], *, is_whole: bool) -> Workflow:
    """Count what became of the messages of a workflow."""
    return Workflow(
        id=workflow_id,
        topic=next((each.topic for each in messages if each.topic), None),
        total=len(messages),
        live=sum(each.is_live for each in messages),
        held=sum(bool(each.is_held) for each in messages),
        dead=sum(each.state in DEAD for each in messages),
        cancelled=sum(each.state == "cancelled" for each in messages),
        created_at=min((each.created_at for each in messages if each.created_at), default=None),
        last_ended_at=max((each.archived_at for each in messages if each.archived_at), default=None),
        is_whole=is_whole,
    )
