"""The output of the demo on terminals, in pipes, and without colours."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from pgrouse.demo import hints, screen
from pgrouse.demo.live import LiveScreen
from pgrouse.demo.screen import Gauge, PlainScreen

CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
GAUGE = Gauge(done=1204, total=2487, per_s=812, dead=40, doing="working through the files")
ROWS = [["TOPIC", "PUBLISHED", "SUCCESS"], ["file.read", "2,451", "2,281"], ["label.print", "16", "-"]]


class Terminal(io.StringIO):
    """A terminal as far as a stream can be recognized as one."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True

    def lines(self) -> list[str]:
        return [line.rstrip() for line in CONTROL.sub("", self.getvalue()).replace("\r", "\n").split("\n")]


@pytest.fixture(autouse=True)
def _ordinary_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")


def test_a_terminal_gets_a_live_screen() -> None:
    assert isinstance(screen.choose(Terminal()), LiveScreen)


@pytest.mark.parametrize(("variable", "value"), [("NO_COLOR", "1"), ("CI", "true"), ("TERM", "dumb")])
def test_no_color_prints_plain_lines(monkeypatch: pytest.MonkeyPatch, variable: str, value: str) -> None:
    monkeypatch.setenv(variable, value)

    assert isinstance(screen.choose(Terminal()), PlainScreen)


def test_a_pipe_gets_plain_lines() -> None:
    assert isinstance(screen.choose(io.StringIO()), PlainScreen)


def test_lines_fit_the_terminal_and_ongoing_steps_are_indented() -> None:
    terminal = Terminal()

    with screen.choose(terminal) as shown:
        shown.tell("publish", "word " * 30)
        shown.show(GAUGE)
        shown.table(ROWS)
        shown.check(True, "fine " * 20)

    lines = terminal.lines()
    assert max(map(len, lines)) <= 80
    first = lines.index(next(line for line in lines if line.startswith(" publish  word")))
    assert lines[first + 1].startswith(" " * 10 + "word")
    assert any("1,204/2,487 done" in line and "40 dead" in line for line in lines)
    assert any(line.startswith("       ✓  fine") for line in lines)


def test_the_bar_is_removed_at_the_end() -> None:
    terminal = Terminal()

    with screen.choose(terminal) as shown:
        shown.show(GAUGE)

    assert terminal.getvalue().endswith(("\x1b[2K", "\x1b[2K\x1b[?25h", "\x1b[?25h"))
    assert "\x1b[2K" in terminal.getvalue()


def test_control_characters_never_reach_the_terminal() -> None:
    terminal, pipe = Terminal(), io.StringIO()

    for stream in (terminal, pipe):
        with screen.choose(stream) as shown:
            shown.tell("alert", "a file called \x1b]0;evil\x07")

    assert "\x1b]0;" not in terminal.getvalue()
    assert "\x1b" not in pipe.getvalue()


def test_plain_progress_is_printed_at_intervals() -> None:
    pipe = io.StringIO()

    with screen.choose(pipe) as shown:
        for _ in range(100):
            shown.show(GAUGE)

    assert pipe.getvalue() == "...       1,204/2,487 done, 812/s, 40 dead\n"


def test_a_plain_table_is_aligned() -> None:
    pipe = io.StringIO()

    with screen.choose(pipe) as shown:
        shown.table(ROWS)

    assert pipe.getvalue().splitlines() == [
        "",
        "TOPIC        PUBLISHED  SUCCESS",
        "file.read        2,451    2,281",
        "label.print         16        -",
        "",
    ]


def test_a_password_of_the_user_is_not_shown_with_keep() -> None:
    pipe, dsn = io.StringIO(), "postgresql://me:hunter22@db/queue"

    with screen.choose(pipe) as shown:
        hints.tell(dsn, dsn, Path("/logs"), None, shown)

    assert "hunter22" not in pipe.getvalue()
    assert "psql 'postgresql://me:****@db/queue'" in pipe.getvalue()
    assert "demo --stop --dsn" in pipe.getvalue()
