"""Where the web server listens, and who can reach that."""

from __future__ import annotations

import ipaddress
import socket
from typing import Any
from urllib.parse import urlsplit

from pgrouse.errors import ConfigError

BACKLOG = 2048


def host_and_port(listen: str) -> tuple[str, int]:
    """Return host and port of `host:port`.

    Raises:
        ConfigError: the port is none.
    """
    try:
        parts = urlsplit(f"//{listen}")
        host, port = parts.hostname or "", parts.port or 0
    except ValueError as error:
        raise ConfigError(f"web.listen {listen!r} cannot be used: the port is 0 to 65535") from error
    return host, port


def is_loopback(listen: str) -> bool:
    """Say whether only this machine reaches it."""
    host, _ = host_and_port(listen)
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def bind(listen: str) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ConfigError: the address cannot be had.
    """
    host, port = host_and_port(listen)
    try:
        (family, *_, place), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return _listening(socket.socket(family, socket.SOCK_STREAM), place)
    except OSError as error:
        raise ConfigError(
            f"web.listen {listen} cannot be had: {error.strerror}; choose another port by --listen"
        ) from error


def _listening(sock: socket.socket, place: Any) -> socket.socket:
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(place)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    sock.setblocking(False)
    return sock


def url(sock: socket.socket) -> str:
    """Return the address as a browser takes it."""
    host, port, *_ = sock.getsockname()
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
