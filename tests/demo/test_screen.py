"""The output of the demo."""

from __future__ import annotations

import io
from pathlib import Path

from pgrouse.cli.demo import hints
from pgrouse.cli.demo.screen import Screen


def test_control_characters_are_never_written() -> None:
    written = io.StringIO()

    Screen(written).tell("alert", "a file called \x1b]0;evil\x07")

    assert "\x1b" not in written.getvalue()


def test_a_password_of_the_user_is_not_shown_with_keep() -> None:
    pipe, dsn = io.StringIO(), "postgresql://me:hunter22@db/queue"

    hints.tell(dsn, dsn, Path("/logs"), None, Screen(pipe))

    assert "hunter22" not in pipe.getvalue()
    assert "psql 'postgresql://me:****@db/queue'" in pipe.getvalue()
    assert "demo --stop --dsn" in pipe.getvalue()
