"""Why a message is not running."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic_core import from_json

from pgrouse.client.call import Call, rows_call


@dataclass(frozen=True, slots=True)
class Reason:
    """A row of `messages.explain`."""

    code: str
    reason: str
    detail_json: str | None

    @property
    def detail(self) -> Any:
        """The same, decoded."""
        return None if self.detail_json is None else from_json(self.detail_json)


def explain(id: int) -> Call[list[Reason]]:
    """Explain why a message is not running, the most decisive reason first."""
    return rows_call("explain", Reason, id=id)
