"""The output of the demo."""

from __future__ import annotations

import io
from pathlib import Path

from pgrouse.demo import hints
from pgrouse.demo.screen import Screen

ROWS = [["TOPIC", "PUBLISHED", "SUCCESS"], ["file.read", "2,451", "2,281"], ["label.print", "16", "-"]]


def test_control_characters_are_never_written() -> None:
    written = io.StringIO()

    Screen(written).tell("alert", "a file called \x1b]0;evil\x07")

    assert "\x1b" not in written.getvalue()


def test_progress_is_printed_at_intervals() -> None:
    pipe = io.StringIO()

    shown = Screen(pipe)
    for _ in range(100):
        shown.show_progress(1204, 2487, 812, 40)

    assert pipe.getvalue() == "...       1,204/2,487 done, 812/s, 40 dead\n"


def test_a_table_is_aligned() -> None:
    pipe = io.StringIO()

    Screen(pipe).table(ROWS)

    assert pipe.getvalue().splitlines() == [
        "",
        "TOPIC        PUBLISHED  SUCCESS",
        "file.read        2,451    2,281",
        "label.print         16        -",
        "",
    ]


def test_a_password_of_the_user_is_not_shown_with_keep() -> None:
    pipe, dsn = io.StringIO(), "postgresql://me:hunter22@db/queue"

    hints.tell(dsn, dsn, Path("/logs"), None, Screen(pipe))

    assert "hunter22" not in pipe.getvalue()
    assert "psql 'postgresql://me:****@db/queue'" in pipe.getvalue()
    assert "demo --stop --dsn" in pipe.getvalue()
