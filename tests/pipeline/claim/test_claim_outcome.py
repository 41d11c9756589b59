"""How each message of a batch ends: by rows of id, claim, outcome, reason and delay."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgrouse.errors import ConfigError
from pyspark_pgrouse.claim.outcome import AttemptOutcome, Row, SettledCounts, settle_rows, sum_results
from tests.sql.queue import Queue

ENDED = "SELECT id, result, error FROM messages.message_archive ORDER BY id"


def ended(queue: Queue) -> dict[int, tuple[str, str | None]]:
    return {row.id: (row.result, row.error) for row in queue.rows(ENDED)}


def row(claimed: Any, outcome: str | None = None, **columns: Any) -> Row:
    """Return what a row of a DataFrame says about a claimed message."""
    return claimed.id, claimed.claim_id, AttemptOutcome.parse({"outcome": outcome, **columns})


def one(queue: Queue, outcome: str | None, reason: str | None = None, after: Any = None) -> int:
    """Publish, claim and settle one message."""
    queue.publish()
    claimed = queue.claim_one()
    counted = settle_rows(queue.conn, [row(claimed, outcome, reason=reason, after=after)])
    assert sum_results(counted).total == 1
    return int(claimed.id)


@pytest.mark.parametrize(
    ("outcome", "attempts", "became", "error"),
    [
        ("complete", 1, "success", None),
        (None, 1, "success", None),
        ("reject", 2, "rejected", "why"),
        ("fail", 2, "failed", "why"),
        ("retry", 1, "failed", "why"),
        ("retry", 2, "retry", None),
        ("expire", 1, "lock_expired", "why"),
        ("expire", 2, "retry", None),
        ("defer", 1, "defer", None),
        ("release", 1, "release", None),
    ],
)
def test_each_outcome_has_its_result_in_the_archive_and_in_the_counts(
    queue: Queue, outcome: str | None, attempts: int, became: str, error: str | None
) -> None:
    queue.policy(max_attempts=attempts)
    queue.publish()
    claimed = queue.claim_one()

    counted = sum_results(settle_rows(queue.conn, [row(claimed, outcome, reason="why")]))

    assert counted == SettledCounts({became: 1})
    assert counted.dead == (became in ("rejected", "failed", "lock_expired"))
    waits = became in ("retry", "defer", "release")
    assert ended(queue) == ({} if waits else {claimed.id: (became, error)})


def test_an_outcome_without_a_reason_names_its_source(queue: Queue) -> None:
    settled = one(queue, "reject")

    assert ended(queue) == {settled: ("rejected", "reject by the batch's function")}


@pytest.mark.parametrize("after", ["1h", 3600, timedelta(hours=1)])
@pytest.mark.parametrize(("outcome", "attempts"), [("retry", 1), ("defer", 0)])
def test_a_delayed_message_returns_after_the_delay(queue: Queue, outcome: str, attempts: int, after: Any) -> None:
    queue.policy(max_attempts=5)

    message = queue.message(one(queue, outcome, after=after))

    assert message.attempts == attempts
    assert timedelta(minutes=59) < message.available_at - message.created_at < timedelta(minutes=61)


@pytest.mark.parametrize(("ran", "runs"), [(None, 1), (True, 1), (False, 0)])
def test_a_release_keeps_the_run_unless_work_had_not_begun(queue: Queue, ran: bool | None, runs: int) -> None:
    queue.publish()
    claimed = queue.claim_one()

    settle_rows(queue.conn, [row(claimed, "release", ran=ran)])

    assert queue.message(claimed.id).runs == runs


@pytest.mark.parametrize("outcome", ["retry", "defer"])
def test_the_next_attempt_gets_the_state(queue: Queue, outcome: str) -> None:
    queue.policy(max_attempts=2)
    queue.publish()

    settle_rows(queue.conn, [row(queue.claim_one(), outcome, state='{"page": 2}', after=0)])

    assert queue.claim_one().state == '{"page": 2}'


def test_a_message_may_be_deferred_until_a_time(queue: Queue) -> None:
    queue.publish()
    claimed, until = queue.claim_one(), datetime(2040, 1, 2, tzinfo=UTC)

    settle_rows(queue.conn, [row(claimed, "defer", until=until)])

    assert queue.message(claimed.id).available_at == until


def test_a_deferral_may_pause_the_topic_or_the_channel(queue: Queue) -> None:
    queue.publish_many(2, channel="acme")
    other = queue.publish(channel="other")
    claimed = queue.claim_one()

    settle_rows(queue.conn, [row(claimed, "defer", after="1h", pause="channel", reason="429")])

    assert [each.id for each in queue.claim()] == [other]
    assert queue.value("SELECT paused_reason FROM messages.channel") == "429"
    with pytest.raises(ConfigError, match="pause must be topic or channel, found 'all'"):
        row(claimed, "defer", pause="all")


def test_the_archive_stores_the_output(queue: Queue) -> None:
    queue.publish()
    claimed = queue.claim_one()

    settle_rows(queue.conn, [row(claimed, output='{"rows": 3}')])

    assert queue.archived(claimed.id).output == {"rows": 3}


def test_a_message_that_is_no_longer_held_is_counted_as_lost_and_unchanged(queue: Queue) -> None:
    queue.publish_many(2)
    first, second = queue.claim()
    queue.settle("release", [first])

    counted = settle_rows(queue.conn, [row(claimed, "reject") for claimed in (first, second)])

    assert sum_results(counted) == SettledCounts({"rejected": 1}, lost=1)
    assert queue.ids() == [first.id]


@pytest.mark.parametrize(
    ("outcome", "given", "said"),
    [
        ("done", {}, "outcome must be one of complete, retry, expire, reject, fail, defer, release, found 'done'"),
        ("retry", {"after": "soon"}, "after: expected a duration"),
        ("retry", {"state": "{"}, "state"),
        ("retry", {"state": '"\\u0000"'}, "state"),
        ("complete", {"output": "NaN"}, "output"),
        ("defer", {"until": datetime(2030, 1, 1)}, "until: 2030-01-01 00:00:00 has no time zone"),  # noqa: DTZ001
    ],
)
def test_an_invalid_outcome_settles_nothing(queue: Queue, outcome: str, given: dict[str, Any], said: str) -> None:
    queue.publish_many(2)
    first, second = queue.claim()

    with pytest.raises(ConfigError, match=said):
        settle_rows(queue.conn, (row(first), row(second, outcome, **given)))
    assert ended(queue) == {}


def test_a_release_replaced_by_a_newer_message_of_its_key_is_counted_as_cancelled(queue: Queue) -> None:
    queue.publish(key="k")
    claimed = queue.claim_one()
    queue.publish(key="k")

    counted = settle_rows(queue.conn, [row(claimed, "release")])

    assert sum_results(counted) == SettledCounts({"cancelled": 1})
