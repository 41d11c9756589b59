"""`pgrouse replay`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.cli.shell import Ended, Shell
from tests.sql.queue import Queue

EARLY = "2020-01-01T00:00:00Z"


def succeed(queue: Queue, *topics: str) -> list[int]:
    """Publish a message for each topic and let it succeed; return the ids."""
    ids = [queue.publish(topic) for topic in topics]
    for topic in topics:
        queue.settle("complete", queue.claim(topic))
    return ids


def waiting(queue: Queue) -> list[int]:
    return [row.redriven_from for row in queue.rows("SELECT redriven_from FROM messages.message ORDER BY id")]


def test_successes_of_a_topic_are_published_again(pgrouse: Shell, queue: Queue) -> None:
    first, second, _ = succeed(queue, "a", "a", "b")

    ended = pgrouse("replay", "a", "--from", EARLY, "--yes")

    assert (ended.code, ended.out, ended.err) == (0, "published 2 messages again\n", "")
    assert waiting(queue) == [first, second]


def test_replay_asks_for_confirmation(pgrouse: Shell, queue: Queue) -> None:
    (done,) = succeed(queue, "a")

    refused = pgrouse("replay", "a", "--from", EARLY, stdin="n\n")
    unasked = pgrouse("replay", "a", "--from", EARLY, stdin="")
    confirmed = pgrouse("replay", "a", "--from", EARLY, stdin="y\n")

    assert "publish 1 message of topic a again? [y/N]" in refused.err
    assert (refused.code, unasked.code, confirmed.code) == (130, 130, 0)
    assert waiting(queue) == [done]


def test_a_dry_run_only_counts(pgrouse: Shell, queue: Queue) -> None:
    succeed(queue, "a", "a")

    ended = pgrouse("replay", "a", "--from", EARLY, "--dry-run")

    assert ended.out == "would publish 2 messages again: run it again without --dry-run\n"
    assert pgrouse("replay", "a", "--from", EARLY, "--dry-run", "--json").object == {
        "messages": 2,
        "no_payload": 0,
        "at_least": False,
    }
    assert queue.ids() == []


def test_messages_without_a_stored_payload_are_reported(pgrouse: Shell, queue: Queue) -> None:
    succeed(queue, "a")
    queue.policy("a", archive_success="no_payload")
    succeed(queue, "a")

    ended = pgrouse("replay", "a", "--from", EARLY, "--yes")

    assert ended.out == "published 1 message again\n"
    assert ended.err == "pgrouse: 1 message not replayed: the topic's archive_success did not keep their payloads\n"


def test_many_messages_are_replayed_in_several_batches_at_the_rate(pgrouse: Shell, queue: Queue) -> None:
    queue.publish_many(1100, "a")
    for _ in range(11):
        queue.settle("complete", queue.claim("a"))

    ended = pgrouse("replay", "a", "--from", EARLY, "--yes", "--rate", "10")

    assert ended.out == "published 1,100 messages again\n"
    spread = "SELECT extract(epoch FROM max(available_at) - min(available_at))::float FROM messages.message"
    # 110 seconds, and the time between two batches; each batch for itself would take 100.
    assert 101 < queue.value(spread) < 119


def test_a_delay_is_that_of_the_first_message(pgrouse: Shell, queue: Queue) -> None:
    succeed(queue, "a")

    pgrouse("replay", "a", "--from", EARLY, "--yes", "--delay", "1h")

    (left,) = queue.row("SELECT available_at - clock_timestamp() FROM messages.message")
    assert timedelta(minutes=58) < left <= timedelta(hours=1)


def test_an_interrupted_replay_prints_where_to_continue(
    pgrouse: Shell, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgrouse.cli.queue.replay.BATCH", 2)
    done = succeed(queue, *["a"] * 5)
    calls: list[Ended] = []

    def interrupt(*_: object) -> None:
        calls.append(Ended(0, "", ""))
        if len(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr("pgrouse.terminal.command.CliSession.record", interrupt)
    ended = pgrouse("replay", "a", "--from", EARLY, "--yes")
    monkeypatch.undo()

    assert ended.code == 130
    assert f"published 4 messages again; go on with --after {done[3]}\n" in ended.err


def test_a_replay_continues_after_an_id(pgrouse: Shell, queue: Queue) -> None:
    done = succeed(queue, *["a"] * 3)

    pgrouse("replay", "a", "--from", EARLY, "--yes", "--after", done[1])

    assert waiting(queue) == [done[2]]


def test_the_period_ends_at_the_given_time_and_never_after_now(pgrouse: Shell, queue: Queue) -> None:
    succeed(queue, "a")

    early = pgrouse("replay", "a", "--from", EARLY, "--to", "2020-01-02T00:00:00Z", "--yes")
    late = pgrouse("replay", "a", "--from", "2090-01-01T00:00:00Z", "--to", "2099-01-01T00:00:00Z", "--yes")

    assert (
        (early.code, early.err)
        == (late.code, late.err)
        == (0, "no succeeded message matches: nothing is published again\n")
    )
    assert queue.ids() == []


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["a"], 2, "missing option '--from'"),
        (["a", "--from", "yesterday"], 2, "expected a time with its zone"),
        (["a", "--from", EARLY, "--rate", "0"], 2, "invalid value for '--rate'"),
    ],
)
def test_a_missing_or_invalid_option_is_reported(shell: Shell, arguments: list[str], code: int, complaint: str) -> None:
    ended = shell("replay", *arguments)

    assert ended.code == code
    assert complaint in ended.err


def test_a_period_that_ends_before_it_begins_is_refused(pgrouse: Shell) -> None:
    ended = pgrouse("replay", "t", "--from", "2027-01-02T00:00:00Z", "--to", "2027-01-01T00:00:00Z", "--yes")

    assert (ended.code, ended.out) == (2, "")
    assert "--to 2027-01-01T00:00:00+00:00 is not later than --from 2027-01-02T00:00:00+00:00" in ended.err
