"""A workflow as a graph: its messages, what became of them, and on which of them can be acted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pgrouse.client.calls.monitoring.state import Workflow
from pgrouse.client.calls.workflow import WorkflowMessage
from pgrouse.client.redrive import DEAD

WorkflowWord = Literal["running", "held", "failed", "cancelled", "finished"]


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
