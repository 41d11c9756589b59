"""Why a message is not running."""

from __future__ import annotations

from dataclasses import dataclass

from pgrouse.client.call import Call, JsonText, rows_call


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a message is not running, or how it ended.

    Attributes:
        code: for programs.
        reason: for people.
        detail: what the reason is made of, JSON.
    """

    code: str
    reason: str
    detail: JsonText | None


def explain(id: int) -> Call[list[Reason]]:
    """Explain why a message is not running, the most decisive reason first."""
    return rows_call("explain", Reason, id=id)
