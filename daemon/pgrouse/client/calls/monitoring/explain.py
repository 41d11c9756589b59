"""Why a message is not running."""

from __future__ import annotations

from dataclasses import dataclass

from pgrouse.client.call import Call, binding, decoded


@dataclass(frozen=True, slots=True)
class Reason:
    """A row of `messages.explain`.

    Attributes:
        reason: the reason, for people.
        detail_json: the same for programs: limits, ids, times.
    """

    code: str
    reason: str
    detail_json: str | None

    detail = decoded("detail_json")


@binding
def explain(id: int) -> Call[list[Reason]]:
    """Explain why a message is not running, the most decisive reason first."""
