"""The formats of output."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from pgrouse.terminal import output
from pgrouse.terminal.output import to_json
from pgrouse.terminal.rich_table import rich_table
from pgrouse.terminal.table import Column, plain_table
from pgrouse.values.format import harmless
from pgrouse.values.jsonb import Raw

COLUMNS = [Column("ID", "id", right=True), Column("TOPIC", "topic", wide=True), Column("ERROR", "error", wide=True)]
ROWS = [
    {"id": 7, "topic": "orders", "error": "one\ntwo \x1b[31mred [bold]x[/bold]"},
    {"id": 12345, "topic": "a" * 60, "error": None},
]


def on_terminal(width: int) -> list[str]:
    """Return the lines of the table on a terminal of that width."""
    console = Console(width=width, force_terminal=True, color_system=None, highlight=False)
    with console.capture() as captured:
        console.print(rich_table(COLUMNS, ROWS, width))
    return [line.rstrip() for line in captured.get().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()]


def test_a_table_in_a_pipe_is_aligned_and_uncut() -> None:
    assert plain_table(COLUMNS, ROWS).splitlines() == [
        "   ID  TOPIC                                                         ERROR",
        "    7  orders                                                        one two \\x1b[31mred [bold]x[/bold]",
        f"12345  {'a' * 60}  -",
    ]


@pytest.mark.parametrize("width", [50, 80, 120])
def test_a_table_fits_the_terminal_and_only_wide_columns_are_cut(width: int) -> None:
    lines = on_terminal(width)

    assert max(map(len, lines)) <= width
    assert len(lines) == 3
    assert lines[2].startswith("12345  aaaa")


def test_markup_is_shown_literally() -> None:
    assert "[bold]x[/bold]" in on_terminal(200)[1]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;owned\x07", "\\x1b]0;owned\\x07"),
        ("a\rb\x08c", "a\\rb\\x08c"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eevil", "\\u202eevil"),
        ("\ud800", "\\ud800"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("größe 東京 🎉", "größe 東京 🎉"),
    ],
)
def test_control_characters_never_reach_a_terminal(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_json_has_iso_times_seconds_base64_and_exact_numbers() -> None:
    row = {
        "at": datetime(2027, 1, 1, tzinfo=UTC),
        "age": timedelta(milliseconds=1500),
        "body": b"\x00\xff",
        "payload": Raw('{"n": 0.12345678901234567890}'),
        "path": Path("/x"),
        "none": None,
    }

    text = to_json(row)

    assert '"payload": {"n": 0.12345678901234567890}' in text
    assert json.loads(text) == {
        "at": "2027-01-01T00:00:00+00:00",
        "age": 1.5,
        "body": {"base64": "AP8="},
        "payload": {"n": 0.12345678901234567890},
        "path": "/x",
        "none": None,
    }


def test_a_terminal_without_rich_gets_the_table_of_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output.Output, "on_terminal", True)
    monkeypatch.setattr(output, "has_rich", lambda: False)

    output.Output(as_json=False).rows(COLUMNS, ROWS, "nothing")

    assert capsys.readouterr().out == f"{plain_table(COLUMNS, ROWS)}\n"
