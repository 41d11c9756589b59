"""The handlers that pgrouse.toml names. A handler takes the payload and optionally a context.

What it returns is kept as the message's output. An exception is a failure: the message is tried again while attempts
are left (max_attempts, which pgrouse.toml sets), and archived as `failed` after that. `Reject` ends a message that no
attempt can help.
"""

import time

from pydantic import BaseModel

from pgrouse import AsyncContext, Reject


async def hello(payload: dict[str, str], ctx: AsyncContext) -> str:
    """Work a message of topic `hello`: an async handler runs on the event loop and must not block it."""
    name = payload.get("name")
    if not name:
        raise Reject("the payload has no name")
    ctx.log.info("greeting.said", waited_s=ctx.waited_s)
    return f"Hello, {name}!"


class Report(BaseModel):
    """The payload of topic `report.build`: one that does not fit is rejected, with the list of errors."""

    pages: int


def build_report(report: Report) -> dict[str, int]:
    """Work a message of topic `report.build`: a sync handler runs in a thread and may block."""
    time.sleep(0.01 * report.pages)
    return {"pages": report.pages}
