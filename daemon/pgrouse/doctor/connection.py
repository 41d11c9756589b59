"""Checks whether the database can be reached."""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.doctor.finding import Finding, ok
from pgrouse.doctor.target import DoctorTarget

WHO = """
  SELECT current_setting('server_version') || ', database ' || current_database() || ', as ' || current_user
"""


def check(target: DoctorTarget) -> Iterator[Finding]:
    """Report which server and database the connection leads to."""
    with target.reading() as conn:
        row = conn.execute(WHO).fetchone()
    yield ok("connection", f"PostgreSQL {row[0] if row else 'of an unknown version'}")
