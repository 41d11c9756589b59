"""What is allowed in the configuration, but surprises."""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.doctor.finding import Finding, ok, warn
from pgrouse.doctor.target import Subject
from pgrouse.handlers.handler import questions


def look(subject: Subject) -> Iterator[Finding]:
    """Say which keys say nothing together, or more than their reader may think."""
    asked = questions(subject.settings)
    for each in asked:
        yield warn(
            "configuration", str(each), "choose one of the two; docs/reference/configuration.md tells what each does"
        )
    if not asked:
        yield ok("configuration", str(subject.settings.path or "no file, defaults only"))
