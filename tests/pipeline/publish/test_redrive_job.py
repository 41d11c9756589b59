"""`pgrouse pipeline redrive`: Spark selects dead messages, the database redrives each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pgrouse.terminal import bulk
from tests.cli.conftest import folder, pgrouse, shell
from tests.cli.shell import Shell
from tests.sql.deaths import die
from tests.sql.queue import Queue

__all__ = ["folder", "pgrouse", "shell"]
pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

TIMEOUTS = "error LIKE '%timeout%' AND topic = 'orders'"


@pytest.fixture
def dead(queue: Queue) -> list[int]:
    """Two orders that died of a timeout, and two messages that did not."""
    chosen = [die(queue, "orders", "timeout of the shop", payload={"n": n}) for n in range(2)]
    die(queue, "orders", "no such customer")
    die(queue, "mails", "timeout of the relay")
    return chosen


def redriven(queue: Queue) -> list[int]:
    return [row.redriven_from for row in queue.rows("SELECT redriven_from FROM messages.message ORDER BY 1")]


def test_selected_messages_are_redriven_once(pgrouse: Shell, queue: Queue, dead: list[int]) -> None:
    dry = pgrouse("pipeline", "redrive", "--where", TIMEOUTS, "--dry-run", "--json")
    assert [(row["topic"], row["messages"], row["sample_id"]) for row in dry.objects] == [("orders", 2, dead[0])]
    assert redriven(queue) == []

    first = pgrouse("pipeline", "redrive", "--where", TIMEOUTS)
    second = pgrouse("pipeline", "redrive", "--where", "error LIKE '%timeout%'")

    assert (first.code, first.out) == (0, "redrove 2 messages\n")
    assert second.out == "redrove 1 message\n"
    assert "2 messages not redriven: redriven before" in second.err
    assert sorted(redriven(queue))[:2] == dead
    assert len(redriven(queue)) == 3
    nothing = pgrouse("pipeline", "redrive", "--where", "topic = 'unknown'")
    assert (nothing.code, nothing.out) == (0, "no dead message matches: nothing was redriven\n")
    for where in ("colour = 'red'", "topic ="):
        invalid = pgrouse("pipeline", "redrive", "--where", where, "--dry-run")
        assert (invalid.code, f"--where {where}" in invalid.err) == (78, True)


def test_a_killed_redrive_continues_where_it_was(
    pgrouse: Shell, queue: Queue, dead: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "BATCH", 1)
    given: list[Any] = []
    advance = bulk.NoProgress.advance

    def die_after_the_first(self: bulk.NoProgress, messages: int) -> None:
        advance(self, messages)
        given.append(messages)
        raise SystemExit(9)

    monkeypatch.setattr(bulk.NoProgress, "advance", die_after_the_first)
    with pytest.raises(SystemExit):
        pgrouse("pipeline", "redrive", "--where", TIMEOUTS)
    assert (given, redriven(queue)) == ([1], dead[:1])
    monkeypatch.setattr(bulk.NoProgress, "advance", advance)

    again = pgrouse("pipeline", "redrive", "--where", TIMEOUTS)

    assert again.out == "redrove 1 message\n"
    assert redriven(queue) == dead


def test_the_oldest_are_redriven_first_within_limit_and_rate(pgrouse: Shell, queue: Queue, dead: list[int]) -> None:
    pgrouse("pipeline", "redrive", "--where", "topic = 'orders'", "--limit", 2, "--rate", 0.01)

    rows = queue.rows("SELECT redriven_from, available_at FROM messages.message ORDER BY available_at")
    assert [row.redriven_from for row in rows] == dead
    assert (rows[1].available_at - rows[0].available_at).total_seconds() == pytest.approx(100)


def test_messages_selected_in_a_lake_are_checked_by_the_database(
    pgrouse: Shell, queue: Queue, dead: list[int], tmp_path: Path
) -> None:
    assert pgrouse("pipeline", "export", tmp_path / "lake").code == 0
    queue.rows("SELECT * FROM messages.redrive(%s)", [dead[:1]])
    queue.conn.execute("DELETE FROM messages.message")

    ended = pgrouse("pipeline", "redrive", "--lake", tmp_path / "lake", "--where", TIMEOUTS)

    assert ended.out == "redrove 1 message\n"
    assert redriven(queue) == dead[1:]
    DeltaTable(tmp_path / "lake").alter.set_table_properties({"pgrouse.queue": "9"}, raise_if_not_exists=False)
    refused = pgrouse("pipeline", "redrive", "--lake", tmp_path / "lake", "--where", "true")
    assert (refused.code, "its ids are other messages here" in refused.err) == (78, True)
