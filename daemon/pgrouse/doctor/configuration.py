"""Finds settings that are allowed but surprising."""

from __future__ import annotations

from collections.abc import Iterator

from pgrouse.doctor.finding import Finding, ok, warn
from pgrouse.doctor.target import DoctorTarget
from pgrouse.handlers.declaration.loader import find_suspicious_settings


def check(target: DoctorTarget) -> Iterator[Finding]:
    """Report settings that contradict each other or do more than they seem to."""
    asked = find_suspicious_settings(target.settings)
    for each in asked:
        yield warn("configuration", str(each), "choose one of the two; docs/reference/configuration.md describes both")
    if not asked:
        yield ok("configuration", str(target.settings.path or "no file, defaults only"))
