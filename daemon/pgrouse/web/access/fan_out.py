"""What a message that was fanned out shows of its copies: only those in topics that the caller may see."""

from __future__ import annotations

import json
from typing import Any

from pgrouse.web.access.caller import Caller

# What messages.fan_out archives a message as, and the code of its explanation.
HANDLED_BY = "fan-out"
CODE = "fanned_out"


def hide_copies(caller: Caller, row: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose output, as JSON text, names no topic of others."""
    if caller.sees_all or row["worker"] != HANDLED_BY or row["output"] is None:
        return row
    copies = _copies(row["output"])
    if copies is None:
        return row | {"output": None}
    return row | {"output": json.dumps({CODE: {topic: copy for topic, copy in copies.items() if caller.sees(topic)}})}


def _copies(output: str) -> dict[str, Any] | None:
    """Return what an output lists.

    None: it was too long to be shown as a whole, or is of a worker that calls itself like this.
    """
    try:
        found = json.loads(output)
    except ValueError:
        return None
    copies = found.get(CODE) if isinstance(found, dict) else None
    return copies if isinstance(copies, dict) else None


def may_see_reason(caller: Caller, code: str, detail_json: str | None) -> bool:
    """Return whether an explanation names no topic of others."""
    return code != CODE or caller.sees_all or all(map(caller.sees, json.loads(detail_json or "{}")))
