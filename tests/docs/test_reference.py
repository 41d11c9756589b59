"""The reference pages list exactly what the code has."""

from __future__ import annotations

import re

from pgrouse.errors import ExitCode
from pgrouse.logging import events
from tests.docs.page import ROOT, Page

EVENTS = Page("docs/reference/events.md")
EXIT_CODES = Page("docs/reference/exit-codes.md")


def test_every_event_that_the_code_logs_is_documented_and_no_other() -> None:
    code = "".join(file.read_text() for file in (ROOT / "daemon/pgrouse").rglob("*.py"))
    logged = {getattr(events, name) for name in re.findall(r"\bevents\.([A-Z_]+)\b", code)}

    documented = [row[0].strip("`") for row in EVENTS.rows()]

    assert sorted(documented) == sorted(logged)


def test_every_exit_code_is_documented_and_no_other() -> None:
    documented = {(int(code), name) for code, name, *_ in EXIT_CODES.rows()}

    assert documented == {(int(code), code.name) for code in ExitCode}
