"""A stand-in for a pooler that keeps prepared statements, as PgBouncer does since 1.21.

It gives each a name of its own in the session.

Here each client has a session of its own: what is tested is what a client finds out, and whether it then prepares.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from psycopg.conninfo import conninfo_to_dict, make_conninfo

PREFIX = b"KEPT_"
# The messages of a client that have the name of a statement, with the number of strings before it.
PARSE, BIND, DESCRIBE, CLOSE = b"P", b"B", b"D", b"C"
KEY_DATA = b"K"
STATEMENT = b"S"


@contextmanager
def in_front_of(dsn: str) -> Iterator[str]:
    """Run one and yield the connection string through it."""
    given = conninfo_to_dict(dsn)
    upstream = f"{given['host']}/.s.PGSQL.{given['port']}"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=[listening, upstream], daemon=True).start()
        port = listening.getsockname()[1]
        yield make_conninfo(dsn, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket, upstream: str) -> None:
    with suppress(OSError):
        while True:
            client, _ = listening.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(upstream)
            threading.Thread(target=_to_server, args=[client, server], daemon=True).start()
            threading.Thread(target=_to_client, args=[server, client], daemon=True).start()


def _to_server(client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError, EOFError), client, server:
        (length,) = struct.unpack("!I", first := _read(client, 4))
        server.sendall(first + _read(client, length - 4))
        while True:
            kind, body = _message(client)
            server.sendall(_framed(kind, _renamed(kind, body)))


def _to_client(server: socket.socket, client: socket.socket) -> None:
    with suppress(OSError, EOFError), client, server:
        while True:
            kind, body = _message(server)
            client.sendall(_framed(kind, b"\x00\x00\x00\x01" + body[4:] if kind == KEY_DATA else body))


def _renamed(kind: bytes, body: bytes) -> bytes:
    if kind == PARSE:
        return _prefixed(body)
    if kind == BIND:
        portal, _, rest = body.partition(b"\x00")
        return portal + b"\x00" + _prefixed(rest)
    if kind in (DESCRIBE, CLOSE) and body.startswith(STATEMENT):
        return STATEMENT + _prefixed(body[1:])
    return body


def _prefixed(named: bytes) -> bytes:
    """Give a statement another name, unless it has none."""
    return named if named.startswith(b"\x00") else PREFIX + named


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    kind = _read(source, 1)
    (length,) = struct.unpack("!I", _read(source, 4))
    return kind, _read(source, length - 4)


def _framed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!I", len(body) + 4) + body


def _read(source: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        part = source.recv(count - len(got))
        if not part:
            raise EOFError
        got += part
    return got
