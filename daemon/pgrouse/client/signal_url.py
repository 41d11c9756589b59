"""URLs with which a person or a program may signal one event to one message, and nothing else."""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

from pgrouse.client.call import Call
from pgrouse.client.calls.event import sign_signal

NO_ADDRESS = "web.url is not set: set it to the address of the web server, so that others can open the URL"


def signal_url(address: str, id: int, name: str, until: datetime, number: int = 1) -> Call[str]:  # noqa: A002
    """Return the call that makes such a URL.

    Args:
        address: where the web server is, as in `web.url`.
        id: the message.
        name: the event.
        until: how long the URL holds, at most 366 days from now.
        number: which signal of this name it may be; the URL counts once.

    Raises:
        ValueError: the time has no time zone.
    """
    if until.tzinfo is None:
        raise ValueError("until needs a time zone: a naive time means another moment on another machine")
    call = sign_signal(id, name, until, number)
    path = f"{address.rstrip('/')}/signal/{id}/{quote(name, safe='')}"
    query = f"until={int(until.timestamp() // 1)}&number={number}"
    return Call(call.statement, call.values, lambda rows: f"{path}?{query}&signature={call.read(rows)}")
