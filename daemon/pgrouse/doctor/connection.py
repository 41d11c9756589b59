"""Whether the database answers."""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.doctor.finding import Finding, ok
from pgrouse.doctor.target import Subject

WHO = """
  SELECT current_setting('server_version') || ', database ' || current_database() || ', as ' || current_user
"""


def look(subject: Subject) -> Iterator[Finding]:
    """Say where it was connected to."""
    with subject.reading() as conn:
        row = conn.execute(WHO).fetchone()
    yield ok("connection", f"PostgreSQL {row[0] if row else 'of an unknown version'}")
