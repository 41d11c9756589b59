"""The policies that a claim reads, and the topics and priorities that it takes first."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.sql.queue import Queue, Row

# claim_policy: messages.claim_policy: the policy of one topic at one moment; its own row wins over the row '*'.


def policy(queue: Queue, topic: str = "t") -> Row:
    return queue.row("SELECT * FROM messages.claim_policy(%s, messages.now())", [topic])


def test_a_topic_without_its_own_row_has_the_defaults_and_no_limit(queue: Queue) -> None:
    found = policy(queue)

    assert (found.topic, found.max_attempts, found.lock_duration.total_seconds(), found.ordered) == ("t", 1, 30, False)
    limits = (found.stopped_until, found.max_concurrency, found.dequeue_rate, found.probes, found.channel_concurrency)
    assert limits == (None,) * 5
    assert (found.is_limited, found.limits_channels) == (False, False)


@pytest.mark.parametrize(
    ("setting", "default", "own"),
    [
        ("max_attempts", 3, 7),
        ("max_concurrency", 3, 7),
        ("dequeue_rate", 3.5, 7.0),
        ("burst", 3, 7),
        ("channel_concurrency", 3, 7),
        ("ordered", True, False),
    ],
)
def test_the_topics_own_value_wins_over_the_default(queue: Queue, setting: str, default: Any, own: Any) -> None:
    queue.policy("*", **{setting: default})
    queue.policy("u", **{setting: own})

    assert (getattr(policy(queue, "t"), setting), getattr(policy(queue, "u"), setting)) == (default, own)


@pytest.mark.parametrize(
    ("setting", "none"),
    [
        ("max_attempts", 0),
        ("max_concurrency", 0),
        ("dequeue_rate", 0),
        ("channel_concurrency", 0),
        ("channel_min_interval", "0"),
    ],
)
def test_zero_in_the_row_of_a_topic_lifts_a_default_limit(queue: Queue, setting: str, none: Any) -> None:
    queue.policy("*", **{setting: "1 s" if setting == "channel_min_interval" else 3})
    queue.policy("t", **{setting: none})

    assert getattr(policy(queue), setting) is None
    assert (policy(queue).is_limited, policy(queue).limits_channels) == (False, False)


@pytest.mark.parametrize("settings", [{"max_concurrency": 1}, {"dequeue_rate": 1}])
def test_a_limit_of_the_whole_topic_limits_the_topic_and_not_its_channels(
    queue: Queue, settings: dict[str, Any]
) -> None:
    queue.policy(**settings)

    assert (policy(queue).is_limited, policy(queue).limits_channels) == (True, False)


@pytest.mark.parametrize("settings", [{"channel_concurrency": 1}, {"channel_min_interval": "1 s"}, {"ordered": True}])
def test_a_limit_of_channels_limits_the_channels_and_not_the_topic(queue: Queue, settings: dict[str, Any]) -> None:
    queue.policy(**settings)

    assert (policy(queue).is_limited, policy(queue).limits_channels) == (False, True)


def test_a_row_for_one_channel_limits_channels_in_its_topic_only(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('t', 'c', 1)")

    assert [policy(queue, topic).limits_channels for topic in ("t", "u")] == [True, False]


def test_an_expired_pause_of_a_channel_costs_its_topic_nothing(queue: Queue) -> None:
    queue.call("pause", "t", channel="acme", resume_in="1 minute")
    while_it_holds = policy(queue).limits_channels
    queue.later("2 minutes")

    assert (while_it_holds, policy(queue).limits_channels) == (True, False)


@pytest.mark.parametrize(("rate", "burst"), [(1, 1), (10, 1), (11, 2), (100, 10), (0.5, 1)])
def test_the_default_burst_is_a_tenth_of_a_second_of_the_rate(queue: Queue, rate: float, burst: int) -> None:
    queue.policy(dequeue_rate=rate)

    assert policy(queue).burst == burst


@pytest.mark.parametrize("paused", ["t", "*"])
def test_a_paused_topic_is_stopped_until_it_is_resumed(queue: Queue, paused: str) -> None:
    queue.policy(paused, paused_at="2026-01-01")

    assert queue.value("SELECT stopped_until = 'infinity' FROM messages.claim_policy('t', messages.now())") is True


def test_a_pause_with_an_end_stops_the_topic_until_then_and_no_longer(queue: Queue) -> None:
    queue.later("0")
    end = queue.value("SELECT messages.now() + interval '1 minute'")
    queue.policy(paused_at="2026-01-01", resume_at=end)
    assert policy(queue).stopped_until == end

    queue.later("1 minute")

    assert policy(queue).stopped_until is None


def test_of_two_pauses_the_longer_one_counts(queue: Queue) -> None:
    queue.policy("*", paused_at="2026-01-01", resume_at="2900-01-01 00:00+00")
    queue.policy("t", paused_at="2026-01-01", resume_at="2800-01-01 00:00+00")

    assert policy(queue).stopped_until == datetime.fromisoformat("2900-01-01 00:00+00:00")


def breaker(queue: Queue, position: str, probe_in: str | None = None) -> None:
    queue.policy(breaker={"probes": 2})
    queue.conn.execute(
        "INSERT INTO messages.breaker (topic, position, probe_at) VALUES ('t', %s, messages.now() + %s::interval)",
        [position, probe_in],
    )


def test_an_open_breaker_stops_the_topic_until_its_probe_and_then_allows_a_few(queue: Queue) -> None:
    queue.later("0")
    breaker(queue, "open", "10 s")
    assert policy(queue).stopped_until == queue.value("SELECT messages.now() + interval '10 s'")

    queue.later("10 s")

    assert (policy(queue).stopped_until, policy(queue).probes, policy(queue).is_limited) == (None, 2, True)


def test_a_closed_breaker_limits_nothing(queue: Queue) -> None:
    breaker(queue, "closed")

    assert (policy(queue).stopped_until, policy(queue).probes, policy(queue).is_limited) == (None, None, False)


def test_a_breaker_that_was_removed_from_the_policy_stops_nothing(queue: Queue) -> None:
    breaker(queue, "open", "1 hour")

    queue.conn.execute("UPDATE messages.topic SET breaker = NULL")

    assert policy(queue).stopped_until is None


# plain_policy: messages.plain_policy: what a claim of a topic without limits needs to know, and whether the topic has none.

SAME = """
    SELECT (q.policy).max_attempts IS NOT DISTINCT FROM p.max_attempts
       AND (q.policy).lock_duration = p.lock_duration AND (q.policy).timeout IS NOT DISTINCT FROM p.timeout
    FROM messages.plain_policy('t') AS q, messages.claim_policy('t', messages.now()) AS p
"""


def is_plain(queue: Queue) -> bool:
    answer: bool = queue.value("SELECT is_plain FROM messages.plain_policy('t')")
    return answer


@pytest.mark.parametrize(
    "settings",
    [
        {"max_attempts": None},
        {"max_attempts": 0},
        {"max_attempts": 3, "lock_duration": "1 minute", "timeout": "5 s", "backoff": None},
    ],
)
def test_it_has_what_the_whole_policy_has(queue: Queue, settings: dict[str, Any]) -> None:
    queue.policy(**settings)

    assert is_plain(queue)
    assert queue.value(SAME)


@pytest.mark.parametrize("topic", ["t", "*"])
@pytest.mark.parametrize(
    "settings",
    [
        {"max_concurrency": 5},
        {"dequeue_rate": 5},
        {"channel_concurrency": 1},
        {"channel_min_interval": "1 s"},
        {"ordered": True},
        {"paused_at": "2026-01-01"},
    ],
)
def test_a_topic_with_a_limit_is_not_plain(queue: Queue, topic: str, settings: dict[str, Any]) -> None:
    queue.policy(topic, **settings)

    assert not is_plain(queue)


def test_a_topic_with_an_open_breaker_is_not_plain(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.breaker (topic, position, probe_at) VALUES ('t', 'closed', NULL)")
    assert is_plain(queue)

    queue.conn.execute("UPDATE messages.breaker SET position = 'open', probe_at = now()")
    assert not is_plain(queue)


# next_priority: messages.next_priority: the walk over one topic's messages without a channel.

NEXT = "SELECT priority, low = '-infinity' AS from_the_edge FROM messages.next_priority('t', %s::smallint, %s)"


def walk(queue: Queue, marks: bool = True) -> list[Any]:
    found, after = [], -1
    while (step := queue.row(NEXT, [after, marks])).priority is not None:
        found.append(tuple(step))
        after = step.priority
    return found


def test_it_visits_each_priority_from_the_left_edge(queue: Queue) -> None:
    for priority in (9, 0, 5, 5):
        queue.publish(priority=priority)
    queue.publish("u", priority=3)
    queue.publish(priority=4, channel="c")

    assert walk(queue) == [(0, True), (5, True), (9, True)]


def test_a_marked_priority_is_visited_from_its_mark(queue: Queue) -> None:
    for priority in (0, 5, 9):
        queue.publish(priority=priority)
    queue.conn.execute(
        "INSERT INTO messages.low_water VALUES ('t', 5, '2026-01-01'), ('t', 7, '2026-01-01'), ('t', 9, NULL)"
    )

    assert walk(queue) == [(0, True), (5, False), (7, False), (9, True)]


def test_without_marks_it_checks_each_priority(queue: Queue) -> None:
    queue.publish(priority=5)
    queue.conn.execute("INSERT INTO messages.low_water VALUES ('t', 5, '2026-01-01'), ('t', 7, '2026-01-01')")

    assert walk(queue, marks=False) == [(5, True)]


def test_a_topic_without_messages_has_no_priority(queue: Queue) -> None:
    assert walk(queue) == []


# pick_priority: messages.pick_priority: the next ready rows of one topic and priority without a channel. (What a claim as a whole guarantees: test_claim.py.)

PICK = """
    SELECT p.bytes, p.over, p.expired,
           (SELECT array_agg(m.id ORDER BY r.nth) FROM unnest(p.rows) WITH ORDINALITY AS r (ctid, nth) JOIN messages.message AS m ON m.ctid = r.ctid) AS ids
    FROM messages.pick_priority(messages.claim_policy('t', messages.now()), messages.now(), 5::smallint, %s, %s, %s) AS p
"""


def pick(queue: Queue, low: str = "-infinity", limit: int = 10, most_bytes: int = 1_000_000) -> Row:
    return queue.row(PICK, [low, limit, most_bytes])


def test_it_picks_from_one_topic_and_priority_without_a_channel(queue: Queue) -> None:
    wanted = queue.publish()
    queue.publish(priority=4)
    queue.publish("u")
    queue.publish(channel="c")

    assert pick(queue).ids == [wanted]


def test_the_longest_available_go_first(queue: Queue) -> None:
    late, early = queue.publish(wait="-1 s"), queue.publish(wait="-2 s")

    assert pick(queue).ids == [early, late]
    assert pick(queue, limit=1).ids == [early]


def test_it_reads_nothing_below_the_given_position(queue: Queue) -> None:
    queue.publish(available_at="2026-01-01")
    wanted = queue.publish(available_at="2026-01-02")

    assert pick(queue, low="2026-01-02").ids == [wanted]


def test_it_ends_with_the_row_that_reaches_the_byte_limit(queue: Queue) -> None:
    first, second, _ = (queue.publish(body=b"x" * 100) for _ in range(3))

    picked = pick(queue, most_bytes=150)

    assert (picked.ids, picked.bytes) == ([first, second], 200)


def test_delayed_and_locked_rows_are_left_alone(queue: Queue, other: Queue) -> None:
    queue.publish(wait="1 hour")
    queue.publish(wait="-2 s")
    queue.claim(limit=1)
    queue.publish()
    with other.conn.transaction():
        other.claim()

        assert pick(queue).ids is None


def test_rows_that_must_end_are_separate_from_rows_that_can_run(queue: Queue) -> None:
    used_up = queue.publish(max_attempts=3)
    queue.conn.execute("UPDATE messages.message SET attempts = 3")
    expired = queue.publish(expires_at="2026-01-01")
    good = queue.publish(expires_at="2900-01-01")

    picked = pick(queue)

    assert (picked.ids, picked.over, picked.expired) == ([good], [used_up], [expired])


def test_a_message_that_is_both_used_up_and_expired_is_expired(queue: Queue) -> None:
    published = queue.publish(max_attempts=1, expires_at="2026-01-01")
    queue.conn.execute("UPDATE messages.message SET attempts = 1")

    assert (pick(queue).over, pick(queue).expired) == (None, [published])


# next_topic: messages.next_topic: the walk over the topics that may have ready messages.


def next_topic_walk(queue: Queue, wanted: list[str] | None = None, marks: bool = True) -> list[str]:
    topics: list[str] = []
    while (topic := queue.call("next_topic", wanted, topics[-1] if topics else "", marks)) is not None:
        topics.append(topic)
    return topics


@pytest.fixture
def existing_topics(queue: Queue) -> None:
    """Topics of every kind, in the order of their bytes: upper before lower case, a prefix before the longer name."""
    for topic in ("a", "b", "B", "a.b", "a-b", "ab", "9", "z~"[:1], "x" * 200):
        queue.publish_many(3, topic)
    queue.publish("channels.only", channel="c")


ALL = ["9", "B", "a", "a-b", "a.b", "ab", "b", "channels.only", "x" * 200, "z"]


def test_it_visits_every_topic_once_in_the_order_of_bytes(queue: Queue, existing_topics: None) -> None:
    assert next_topic_walk(queue) == ALL


def test_it_visits_only_the_wanted_topics(queue: Queue, existing_topics: None) -> None:
    assert next_topic_walk(queue, ["z", "unknown", "a.b", "B", "channels.only"]) == ["B", "a.b", "channels.only", "z"]


@pytest.mark.parametrize("wanted", [[], ["unknown"], ["0", "~"]])
def test_it_ends_at_once_if_no_wanted_topic_exists(queue: Queue, existing_topics: None, wanted: list[str]) -> None:
    assert next_topic_walk(queue, wanted) == []


def test_an_empty_queue_has_no_topic(queue: Queue) -> None:
    assert next_topic_walk(queue) == []


def test_topics_whose_messages_are_all_locked_are_skipped(queue: Queue) -> None:
    queue.publish("a")
    queue.publish("b")
    queue.claim("a")

    assert next_topic_walk(queue) == ["b"]


def test_a_topic_with_a_mark_is_returned_without_a_check_unless_marks_are_off(
    queue: Queue, existing_topics: None
) -> None:
    queue.conn.execute(
        "INSERT INTO messages.low_water VALUES ('marked', 5, now()), ('a', 5, now()), ('unmarked', 5, NULL)"
    )

    assert next_topic_walk(queue) == sorted([*ALL, "marked"])
    assert next_topic_walk(queue, marks=False) == ALL


@pytest.mark.newest
def test_its_cost_depends_on_the_topics_and_not_on_the_messages(own_queue: Queue) -> None:
    own_queue.publish_many(5000, "a")
    own_queue.publish_many(5000, "b", channel="c")
    own_queue.publish("c")

    assert own_queue.buffers("SELECT messages.next_topic(NULL, 'a')") < 60
    assert own_queue.buffers("SELECT messages.next_topic(ARRAY['c'], '')") < 60


# paused_topics: messages.paused_topics: what a claim leaves out together once it has met several topics that are paused.

LATER = "2099-01-02 03:04:05.678901+00"


def paused(queue: Queue, *topics: str) -> Row:
    return queue.row("SELECT held_back, others FROM messages.paused_topics(%s, messages.now())", [list(topics)])


def publish_to(queue: Queue, count: int) -> list[str]:
    topics = [f"t{nth:02}" for nth in range(count)]
    for topic in topics:
        queue.publish(topic)
    return topics


def look(queue: Queue, topics: list[str]) -> tuple[list[str], dict[str, Any], Any]:
    claimed, left = queue.claim_with_next_due(*topics)
    return [message.topic for message in claimed], left.held_back, left.next_due_s


def test_paused_topics_with_messages_are_held_back_and_the_others_keep_their_order(queue: Queue) -> None:
    queue.policy("for_good", paused_at="2026-01-01")
    queue.policy("for_now", paused_at="2026-01-01", resume_at=LATER)
    queue.policy("resumed", paused_at="2026-01-01", resume_at="2026-01-02")
    queue.policy("empty", paused_at="2026-01-01")
    for topic in ("for_good", "for_now", "resumed", "plain"):
        queue.publish(topic)

    held_back, others = paused(queue, "resumed", "for_good", "plain", "for_now", "empty", "idle")

    assert others == ["resumed", "plain"]
    assert held_back.keys() == {"topic for_good", "topic for_now"}
    assert held_back["topic for_good"] is None
    assert queue.value("SELECT %s::timestamptz = %s::timestamptz", [held_back["topic for_now"], LATER])


def test_a_pause_of_all_topics_holds_each_back(queue: Queue) -> None:
    topics = publish_to(queue, 3)
    queue.policy("*", paused_at="2026-01-01")

    assert paused(queue, *topics) == ({f"topic {topic}": None for topic in topics}, [])


def test_a_claim_finds_the_topic_behind_many_that_are_paused(queue: Queue) -> None:
    topics = publish_to(queue, 30)
    for topic in topics[:-2]:
        queue.policy(topic, paused_at="2026-01-01")

    found, held_back, _ = look(queue, topics)

    assert found == topics[-2:]
    assert held_back.keys() == {f"topic {topic}" for topic in topics[:-2]}


def test_a_claim_says_when_the_first_of_many_paused_topics_is_resumed(queue: Queue) -> None:
    topics = publish_to(queue, 30)
    queue.policy("*", paused_at="2026-01-01")
    queue.policy(topics[20], paused_at="2026-01-01")
    queue.conn.execute("UPDATE messages.topic SET resume_at = messages.now() + interval '1 hour' WHERE topic = '*'")

    found, held_back, next_due_s = look(queue, topics)

    assert (found, len(held_back), held_back[f"topic {topics[20]}"]) == ([], 30, None)
    assert 3500 < next_due_s <= timedelta(hours=1).total_seconds()


# waiting_topics: messages.waiting_topics: the topics that may have waiting messages, within bounds.


def waiting(queue: Queue, after: str = "", limit: int = 100, topics: tuple[str, ...] = ("*",)) -> list[str]:
    found: list[str] = queue.call("waiting_topics", after, limit, list(topics))
    return found


@pytest.fixture
def topics(queue: Queue) -> None:
    for topic in ("B", "a", "a.b", "ab", "b"):
        queue.publish(topic)
    queue.publish("c", channel="only")


@pytest.mark.usefixtures("topics")
def test_it_lists_all_in_the_order_of_bytes(queue: Queue) -> None:
    assert waiting(queue) == ["B", "a", "a.b", "ab", "b", "c"]


@pytest.mark.usefixtures("topics")
def test_it_continues_behind_a_topic_and_ends_at_its_limit(queue: Queue) -> None:
    assert waiting(queue, after="a", limit=2) == ["a.b", "ab"]
    assert waiting(queue, after="c") == []


@pytest.mark.usefixtures("topics")
def test_topics_are_chosen_by_names_and_beginnings_and_listed_once(queue: Queue) -> None:
    assert waiting(queue, topics=("a*", "ab", "c", "unknown")) == ["a", "a.b", "ab", "c"]
    assert waiting(queue, topics=("ab", "b"), limit=1) == ["ab"]
