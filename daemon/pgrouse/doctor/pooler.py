"""Checks whether there is a pooler, and whether the configuration fits it."""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.client.connection import pooler
from pgrouse.doctor.finding import Finding, ok
from pgrouse.doctor.target import DoctorTarget


def check(target: DoctorTarget) -> Iterator[Finding]:
    """Report whether there is a pooler, and whether statements are prepared through it."""
    with target.database.connect_blocking("doctor") as conn, target.bounded(conn):
        direct, prepares = pooler.is_direct(conn), conn.prepare_threshold is not None
    if direct:
        yield ok("pooler", "there is no pooler")
    elif prepares:
        yield ok("pooler", "there is a pooler, and it keeps prepared statements")
    else:
        yield ok("pooler", "there is a pooler, and no statement is prepared")
