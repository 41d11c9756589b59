"""A workflow as a graph: its messages, what became of them, and on which of them can be acted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from pgrouse.client.call import run
from pgrouse.client.calls.monitoring.state import Workflow, workflow_state
from pgrouse.client.calls.workflow import MAX_MESSAGES, WorkflowMessage, workflow_messages
from pgrouse.client.message_state import DEAD
from pgrouse.client.queries.workflow import latest_workflows, workflow_of

WorkflowWord = Literal["running", "held", "failed", "cancelled", "finished"]
# A list with a state looks at this many workflows, and reads them page by page.
MAX_EXAMINED = 1000
PAGE = 200


@dataclass(frozen=True)
class WorkflowGraph:
    """A workflow and its messages.

    Attributes:
        workflow: what became of it.
        messages: in the order in which they were published; one that was redriven is replaced by what it became.
    """

    workflow: Workflow
    messages: list[WorkflowMessage]

    def is_own(self, message: WorkflowMessage) -> bool:
        """Whether a message is of this workflow, and not of another one that it only waits for."""
        return message.workflow_id in (None, self.workflow.id)

    def live_ids(self, may: Callable[[str], bool] = lambda _: True) -> list[int]:
        """Return its own messages that have not ended, of topics that `may` permits: those that a cancel ends.

        Cancel all of them in one statement: the cancel of some may release others, those with `after_failed` run.
        """
        return [each.id for each in self._own(may) if each.is_live]

    def dead_ids(self, may: Callable[[str], bool] = lambda _: True) -> list[int]:
        """Return its own dead messages, of topics that `may` permits: those that a redrive puts back."""
        return [each.id for each in self._own(may) if each.state in DEAD]

    def _own(self, may: Callable[[str], bool]) -> list[WorkflowMessage]:
        return [each for each in self.messages if each.topic and self.is_own(each) and may(each.topic)]


def read_workflow(conn: psycopg.Connection[Any], message_id: int) -> WorkflowGraph | None:
    """Read the workflow of a message; None: it is in none."""
    workflow_id = run(conn, workflow_of(message_id))
    if workflow_id is None:
        return None
    (found,) = run(conn, workflow_state([workflow_id], limit=MAX_MESSAGES))
    return WorkflowGraph(found, run(conn, workflow_messages(workflow_id))) if found.topic else None


def read_workflows(
    conn: psycopg.Connection[Any], state: WorkflowWord | None, before: int | None, limit: int
) -> tuple[list[Workflow], int | None]:
    """Read workflows in a state, the latest first; None = in any.

    Return also the id below which none was looked at although fewer than `limit` were found.
    """
    if state is None:
        return _page(conn, before, limit), None
    found: list[Workflow] = []
    for _ in range(0, MAX_EXAMINED, PAGE):
        page = _page(conn, before, PAGE)
        found += [each for each in page if each.state == state]
        if len(found) >= limit or len(page) < PAGE:
            return found[:limit], None
        before = page[-1].id
    return found, before


def _page(conn: psycopg.Connection[Any], before: int | None, limit: int) -> list[Workflow]:
    ids = run(conn, latest_workflows(before=before, most=limit))
    return run(conn, workflow_state(ids))
