"""A workflow as a graph: its messages, what became of them, and on which of them can be acted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pgrouse.client.queries.workflow import MAX_MESSAGES, Workflow, WorkflowMessage
from pgrouse.client.redrive import DEAD


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


def make_graph(workflow_id: int, found: Sequence[WorkflowMessage], sees: Callable[[str], bool]) -> WorkflowGraph | None:
    """Make the graph of a workflow of those of its messages that may be seen.

    Args:
        workflow_id: which.
        found: what `find_workflow_messages` has read.
        sees: whether messages of a topic may be seen.

    Returns:
        None: no message of it is kept that may be seen.
    """
    seen = [each for each in found if each.topic is None or sees(each.topic)]
    if not any(each.topic for each in seen):
        return None
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
