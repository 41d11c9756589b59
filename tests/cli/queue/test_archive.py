"""`pgrouse archive`."""

from __future__ import annotations

from tests.cli.shell import Shell
from tests.cli.stage import die
from tests.sql.queue import Queue


def archived(queue: Queue) -> list[int]:
    return [row.id for row in queue.rows("SELECT id FROM messages.message_archive ORDER BY id")]


def test_purge_deletes_older_messages_and_keeps_the_others(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "a", age="2 days")
    die(queue, "a", age="40 days")
    (new,) = die(queue, "a")

    ended = pgrouse("archive", "purge", "--older-than", "1d", "--yes")

    assert (ended.code, ended.out) == (0, "deleted 2 messages\n")
    assert archived(queue) == [new]


def test_purge_of_one_topic_deletes_only_its_messages(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "a", age="2 days")
    (kept,) = die(queue, "b", age="2 days")

    assert pgrouse("archive", "purge", "--older-than", "1d", "--topic", "a", "--yes", "--json").object == {"deleted": 1}
    assert archived(queue) == [kept]


def test_purge_asks_for_confirmation(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "a", age="2 days")

    refused = pgrouse("archive", "purge", "--older-than", "1d", "--topic", "a", stdin="n\n")

    assert (refused.code, len(archived(queue))) == (130, 1)
    assert "delete 1 message of topic a for good? [y/N]" in refused.err
    assert pgrouse("archive", "purge", "--older-than", "1d", stdin="y\n").code == 0
    assert archived(queue) == []


def test_a_dry_run_only_counts(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "a", age="2 days")

    ended = pgrouse("archive", "purge", "--older-than", "1d", "--dry-run")

    assert ended.out == "would delete 1 message: run it again without --dry-run\n"
    assert pgrouse("archive", "purge", "--older-than", "3d").out == "no message is that old\n"
    assert len(archived(queue)) == 1


def test_purge_requires_an_age(shell: Shell) -> None:
    ended = shell("archive", "purge")

    assert ended.code == 2
    assert "missing option '--older-than'" in ended.err
