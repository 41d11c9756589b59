"""One HTTP POST, bounded in time and in what is read of the answer; redirections are not followed."""

from __future__ import annotations

import base64
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from email.utils import parsedate_to_datetime
from importlib.metadata import version
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from pgrouse.alerts.sink import SendFailed

# Statuses for which a retry of the same message is useless. All others may be fixed at the other end: a token, a path,
# a rate.
REJECTED = frozenset({400, 413, 415, 422})
ANSWER_BYTES = 2000


def http_post(url: str, body: bytes, headers: Mapping[str, str], timeout_s: float) -> str:
    """Send it; return the status as text.

    Raises:
        SendFailed: there was no answer in time, or none of 200 to 299.
    """
    ends_at = time.monotonic() + timeout_s
    try:
        parts = urlsplit(url)
        connection, target = _connection(parts, timeout_s)
        connection.connect()
        with closing(connection), _close_at(connection.sock, ends_at) as cut:
            connection.request("POST", target, body, {**_own_headers(parts), **headers})
            answer = connection.getresponse()
            text = answer.read(ANSWER_BYTES).decode(errors="replace")
        if cut.is_set():
            # To the HTTP client a connection that was cut looks like the end of the answer.
            raise TimeoutError
    except (OSError, http.client.HTTPException, ValueError) as error:
        if time.monotonic() >= ends_at:
            raise SendFailed(f"no answer within {timeout_s:g}s") from None
        raise SendFailed(f"{type(error).__name__}: {error}") from None
    status = f"{answer.status} {answer.reason}".strip()
    if 200 <= answer.status < 300:  # noqa: PLR2004 - by HTTP
        return status
    said = " ".join(text.split())[:200]
    raise SendFailed(
        f"answered {status}" + (f": {said}" if said else ""),
        refused=answer.status in REJECTED,
        retry_after_s=_retry_after_s(answer.getheader("Retry-After")),
    )


def _own_headers(parts: SplitResult) -> dict[str, str]:
    headers = {"User-Agent": f"pgrouse/{version('pgrouse')}"}
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(user.encode()).decode()
    return headers


def _connection(parts: SplitResult, timeout_s: float) -> tuple[http.client.HTTPConnection, str]:
    """Return a connection, through the proxy of the environment if there is one, and the request target."""
    host, target = parts.hostname or "", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    proxy = None if proxy_bypass(host) else getproxies().get(parts.scheme)
    via = urlsplit(proxy if "//" in proxy else f"//{proxy}") if proxy else None
    at_host, at_port = (via.hostname or "", via.port) if via else (host, parts.port)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            at_host, at_port, timeout=timeout_s, context=ssl.create_default_context()
        )
        if via:
            connection.set_tunnel(host, parts.port or 443)
        return connection, target
    connection = http.client.HTTPConnection(at_host, at_port, timeout=timeout_s)
    return connection, (parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="").geturl() if via else target)


@contextmanager
def _close_at(sock: socket.socket, ends_at: float) -> Iterator[threading.Event]:
    """Shut the connection down when its time is over, and set the event.

    The time-out of a socket counts for each piece that arrives, not for all.
    """
    over = threading.Event()

    def cut() -> None:
        over.set()
        with suppress(OSError):
            # The method of the TLS socket would talk to the other side first.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    timer = threading.Timer(max(0.0, ends_at - time.monotonic()), cut)
    timer.daemon = True
    timer.start()
    try:
        yield over
    finally:
        timer.cancel()


def _retry_after_s(header: str | None) -> float | None:
    """Parse Retry-After: seconds, or a date."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, TypeError):
        return None
