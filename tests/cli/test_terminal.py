"""Output on a terminal."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.cli.shell import PGROUSE
from tests.cli.stage import die, start
from tests.cli.terminal import COLOR, forked_on_terminal, on_terminal, plain
from tests.server.postgres import Database
from tests.sql.queue import Queue

LONG = "reports.build.every.night.for.the.finance.department.and.others"


@pytest.fixture
def environ(database: Database, queue: Queue) -> dict[str, str]:
    """An environment that names a database with some content."""
    queue.publish(LONG, key="k" * 40, channel="c" * 40)
    start(queue, "a-worker-with-quite-a-long-name:4121", "orders.created", LONG)
    die(queue, "orders.created", error="TimeoutError: " + "no answer " * 20)
    return {"PGROUSE_DSN": database.dsn}


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    ("command", "headings"),
    [
        ("stats", "TOPIC READY RUNNING DELAYED DEAD 24H OLDEST HANDLED"),
        ("message list", "ID TOPIC STATE PRIO ATTEMPTS AVAILABLE CHANNEL KEY"),
        ("dead list", "ID TOPIC RESULT ENDED ATTEMPTS ERROR"),
        ("topic list", "TOPIC STATE PAUSED SETS"),
        ("topic show *", "SETTING VALUE FROM"),
        ("redrive --all --dry-run", "TOPIC RESULT MESSAGES OLDEST FINGERPRINT SAMPLE ERROR"),
        ("worker list", "NAME STATE SEEN UP HOST PID SLOTS TOPICS"),
        ("config show", "KEY VALUE FROM"),
    ],
)
def test_every_table_fits_the_terminal_with_all_its_headings(
    environ: dict[str, str], command: str, headings: str, width: int
) -> None:
    lines = plain(forked_on_terminal(command, environ, width))

    assert lines[0].split() == headings.split()
    assert max(map(len, lines)) <= width


@pytest.mark.parametrize(
    ("since", "width", "headings"),
    [
        ("7d", 120, "DEAD TOPIC RESULT FIRST LAST BY DAY FINGERPRINT SAMPLE ERROR"),
        ("7d", 80, "DEAD TOPIC RESULT LAST BY DAY FINGERPRINT SAMPLE ERROR"),
        ("2d", 120, "DEAD TOPIC RESULT LAST BY HOUR FINGERPRINT SAMPLE ERROR"),
        ("2d", 80, "DEAD TOPIC RESULT LAST FINGERPRINT SAMPLE ERROR"),
    ],
)
def test_a_narrow_terminal_omits_minor_columns_and_cuts_no_fingerprint(
    environ: dict[str, str], queue: Queue, since: str, width: int, headings: str
) -> None:
    # As wide as ages become, however slow the test is.
    queue.conn.execute("UPDATE messages.message_archive SET archived_at = archived_at - interval '110 minutes'")

    heading, row = plain(forked_on_terminal(f"dead group --since {since}", environ, width))

    assert heading.split() == headings.split()
    assert f" {queue.value('SELECT error_fingerprint FROM messages.dead')} " in row
    assert len(row) <= width


@pytest.mark.parametrize("width", [40, 80])
def test_a_reason_is_wrapped_and_not_cut(environ: dict[str, str], queue: Queue, width: int) -> None:
    why = " ".join(f"word-{n}" for n in range(30))
    queue.call("pause", LONG, why)

    lines = plain(forked_on_terminal("explain 1", environ, width))

    assert max(map(len, lines)) <= width
    assert why in " ".join(" ".join(lines).split())


@pytest.mark.parametrize("command", ["stats", "dead list", "message show 1"])
def test_output_is_coloured_unless_no_color_is_set(environ: dict[str, str], command: str) -> None:
    colored = forked_on_terminal(command, environ)
    without = forked_on_terminal(command, {**environ, "NO_COLOR": "1"})

    assert any(found != "\x1b[0m" for found in COLOR.findall(colored))
    assert not [found for found in COLOR.findall(without) if found.strip("\x1b[m0") not in ("", "1", "2")]


@pytest.mark.long
def test_json_on_a_terminal_has_no_markup(environ: dict[str, str]) -> None:
    written = on_terminal([PGROUSE, "stats", "--json"], environ)

    assert written.startswith('{"topics": [')
    assert "\x1b" not in written


@pytest.mark.long
def test_a_long_command_shows_a_progress_bar_and_clears_it(environ: dict[str, str], queue: Queue) -> None:
    queue.publish_many(1200, "bulk")
    for _ in range(12):
        claimed = queue.claim("bulk")
        queue.settle("fail", claimed, ["boom"] * len(claimed))

    written = on_terminal([PGROUSE, "redrive", "--topic", "bulk"], environ)

    assert "redriving" in written
    assert plain(written)[-1] == "redrove 1,200 messages"


@pytest.mark.long
def test_an_output_without_unicode_shows_numbers_instead(database: Database, queue: Queue) -> None:
    queue.publish(key="größe")
    environ = {**os.environ, "PGROUSE_DSN": database.dsn, "PYTHONIOENCODING": "ascii"}

    done = subprocess.run([PGROUSE, "message", "list"], env=environ, capture_output=True, text=True, check=True)

    assert done.stdout.endswith("gr\\xf6\\xdfe\n")
