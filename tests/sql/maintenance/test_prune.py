"""The rows that the maintenance deletes because nothing needs them any more."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.server.postgres import Database
from tests.sql.deaths import copy_of, die, outcomes
from tests.sql.exports import export
from tests.sql.measuring import report
from tests.sql.queue import Listener, Queue
from tests.sql.sinks import Sink, raise_alert
from tests.sql.staging import publish_rows, rejected, stage, staged

# messages.prune: deletes expired rows of side tables.


def workers(queue: Queue) -> list[str]:
    return [row.name for row in queue.rows("SELECT name FROM messages.worker ORDER BY name")]


def sleepers(queue: Queue) -> list[str]:
    return [row.worker for row in queue.rows("SELECT worker FROM messages.sleeper ORDER BY worker")]


def test_workers_that_were_not_seen_for_an_hour_are_deleted(queue: Queue) -> None:
    for name in ("alive", "dead", "silent"):
        queue.call("register_worker", name, "host", 42, "1.0", ["t"], 10)
    queue.conn.execute(
        "UPDATE messages.worker SET seen_at = clock_timestamp() - CASE name WHEN 'dead' THEN '61 minutes' "
        "ELSE '59 minutes' END::interval WHERE name <> 'alive'"
    )

    assert queue.call("prune") == 1
    assert workers(queue) == ["alive", "silent"]


def test_a_worker_whose_row_is_locked_is_not_waited_for_and_deleted_later(queue: Queue, other: Queue) -> None:
    queue.call("register_worker", "held", "host", 42, "1.0", ["t"], 10)
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '61 minutes'")
    queue.call("register_worker", "alive", "host", 42, "1.0", ["t"], 10)
    other.conn.execute("SET lock_timeout = '2s'")

    with queue.conn.transaction():
        queue.call("drain_worker", "held")
        assert other.call("prune") == 0

    assert other.call("prune") == 1
    assert workers(queue) == ["alive"]


def test_sleepers_whose_flag_expired_a_minute_ago_are_deleted(queue: Queue) -> None:
    queue.arm("asleep")
    queue.arm("just over", look_in="0 s")
    queue.arm("long over")
    queue.conn.execute(
        "UPDATE messages.sleeper SET armed_until = clock_timestamp() - interval '61 s' WHERE worker = 'long over'"
    )

    assert queue.call("prune") == 1
    assert sleepers(queue) == ["asleep", "just over"]


def test_a_daemon_that_died_awake_leaves_no_row_that_every_publish_would_read(queue: Queue) -> None:
    queue.arm("awake")
    queue.arm("died awake")
    for worker in ("awake", "died awake"):
        queue.call("disarm", worker)
    queue.conn.execute(
        "UPDATE messages.sleeper SET next_look_at = now() - interval '61 minutes' WHERE worker = 'died awake'"
    )

    assert queue.call("prune") == 1
    assert sleepers(queue) == ["awake"]


def test_entries_of_low_water_without_a_message_and_a_mark_are_deleted_occasionally(queue: Queue) -> None:
    queue.publish("waiting")
    queue.conn.execute(
        """
        INSERT INTO messages.low_water (topic, priority, at)
        SELECT 'gone.' || n, 5, NULL FROM generate_series(1, 3000) AS n
        UNION ALL VALUES ('waiting', 5, NULL), ('marked', 5, now())
        """
    )

    forgotten = queue.call("prune")

    assert 0 < forgotten < 300
    assert queue.value("SELECT count(*) FROM messages.low_water WHERE topic IN ('waiting', 'marked')") == 2


def test_flags_that_the_sequences_lack_are_set_again(own_queue: Queue) -> None:
    own_queue.policy("t", max_depth=1)
    own_queue.rows("SELECT setval('messages.policy_topic_bits', 1)")

    own_queue.call("prune")

    assert own_queue.call("has_policies") is True


def test_a_tick_prunes_all_of_these(queue: Queue) -> None:
    queue.call("pause", "mail", channel="over", resume_in="1 minute")
    queue.rows("SELECT * FROM messages.begin_request('shop', 'old', '1')")
    queue.conn.execute("UPDATE messages.web_request SET asked_at = asked_at - interval '25 hours'")
    queue.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'over', 1, now() - interval '1 s')")
    queue.conn.execute("INSERT INTO messages.throttled_key VALUES ('t', 'over', 1, now(), '1 s', now())")
    report(queue, {"topic": "old", "success": 1})
    stage(queue, {})
    queue.later("366 days")

    queue.rows("SELECT * FROM messages.tick()")

    tables = (
        "audit WHERE action = 'pause'", "web_request", "held_key", "throttled_key", "measure", "publish_attempt",
        "channel",
    )  # fmt: skip
    assert [each for each in tables if queue.rows(f"SELECT FROM messages.{each}")] == []


# messages.prune_alerts: deletes old alerts, notifications and silences.


def alerts(queue: Queue) -> int:
    count: int = queue.value("SELECT count(*) FROM messages.alert")
    return count


def deliver(queue: Queue) -> None:
    queue.conn.execute("UPDATE messages.alert SET delivered_at = now()")


@pytest.mark.parametrize(("is_delivered", "days"), [(True, 7), (False, 30)])
def test_alerts_are_kept_for_a_week_and_undelivered_ones_for_the_default_retention(
    queue: Queue, is_delivered: bool, days: int
) -> None:
    die(queue)
    if is_delivered:
        deliver(queue)

    queue.later(f"{days - 1} days")
    assert (queue.call("prune_alerts"), alerts(queue)) == (0, 1)
    queue.later("1 day 1 minute")
    assert (queue.call("prune_alerts"), alerts(queue)) == (1, 0)


def test_a_call_is_bounded(queue: Queue) -> None:
    for _ in range(5):
        die(queue)
    deliver(queue)
    queue.later("8 days")

    assert queue.call("prune_alerts", 3) == 3
    assert alerts(queue) == 2


def test_what_was_sent_and_what_ended_is_deleted_after_a_week_and_silences_after_a_month(
    queue: Queue,
) -> None:
    queue.stop_clock("2026-01-01")
    sink = Sink(queue)
    raise_alert(queue)
    sink.deliver_all()
    queue.call("silence", topic="t", **{"for": "1 hour"})
    ended = "INSERT INTO messages.condition (kind, since, ended_at, what, fix) SELECT 'cron_late', n, n, '', ''"
    queue.conn.execute(f"{ended} FROM messages.now() AS n".encode())
    queue.later("1 hour")
    sink.next()
    left = [("alert_delivery", 1), ("alert_incident", 1), ("condition", 1), ("silence", 1), ("alert_sink", 1)]
    assert [(table, count(queue, table)) for table, _ in left] == left

    queue.later("7 days")
    queue.call("prune_alerts")

    assert [count(queue, table) for table, _ in left] == [0, 0, 0, 1, 1]
    queue.later("24 days")
    queue.call("prune_alerts")
    assert [count(queue, table) for table, _ in left] == [0, 0, 0, 0, 0]


def test_alerts_that_a_sink_has_not_taken_yet_are_kept(queue: Queue) -> None:
    queue.stop_clock("2026-01-01")
    raise_alert(queue)
    Sink(queue).next()

    queue.later("20 days")
    queue.call("prune_alerts")

    assert count(queue, "alert_delivery") == 1


def count(queue: Queue, table: str) -> int:
    found: int = queue.value(f"SELECT count(*) FROM messages.{table}")
    return found


# messages.prune_audit: the audit log is kept for a year.


def test_entries_older_than_a_year_are_deleted_in_bounded_numbers(queue: Queue) -> None:
    for topic in "abc":
        queue.call("pause", topic)

    queue.later("364 days")
    assert queue.call("prune_audit") == 0
    queue.later("2 days")
    assert [queue.call("prune_audit", 2) for _ in range(3)] == [2, 1, 0]


# messages.prune_claim_cursors: only the newest position where claims ended is kept, and only for a time.


def note(queue: Queue, count: int, walk: str = "channels t") -> None:
    for n in range(count):
        queue.call("save_claim_cursor", walk, str(n), None)


def kept(queue: Queue) -> list[str]:
    return [row.at for row in queue.rows("SELECT at FROM messages.claim_cursor ORDER BY n")]


def test_the_newest_of_each_walk_is_kept(queue: Queue) -> None:
    note(queue, 3)
    note(queue, 2, "channels u")

    assert queue.call("prune_claim_cursors") == 3
    assert kept(queue) == ["2", "1"]


def test_after_an_hour_without_a_claim_none_is_kept(queue: Queue) -> None:
    note(queue, 1)
    queue.conn.execute("UPDATE messages.claim_cursor SET noted_at = noted_at - interval '2 hours'")

    assert (queue.call("prune"), kept(queue)) == (1, [])


def test_it_is_bounded_and_waits_for_no_lock(queue: Queue, other: Queue) -> None:
    note(queue, 9)

    with other.conn.transaction():
        other.row("SELECT FROM messages.claim_cursor WHERE at = '0' FOR UPDATE")
        assert queue.call("prune_claim_cursors", 3) == 3

    assert kept(queue) == ["0", "4", "5", "6", "7", "8"]


# messages.prune_jobs: deletes old jobs and staged rows.

BAD = {"reason": "bad", "given": "{}"}


def jobs(queue: Queue) -> list[str]:
    return [row.job for row in queue.rows("SELECT job FROM messages.publish_job ORDER BY job")]


def test_a_job_is_kept_for_thirty_days(queue: Queue) -> None:
    publish_rows(queue, {}, BAD, job="a")
    publish_rows(queue, {}, job="b")

    queue.later("29 days")
    assert (queue.call("prune_jobs"), jobs(queue)) == (0, ["a", "b"])
    queue.later("1 day 1 hour")
    assert queue.call("prune_jobs") > 0
    assert (jobs(queue), rejected(queue, "a")) == ([], [])


def test_a_job_is_kept_for_as_long_as_the_archive(queue: Queue) -> None:
    queue.policy("*", retention="90 days")
    publish_rows(queue, {})

    queue.later("89 days")
    queue.call("prune_jobs")
    assert jobs(queue) == ["j"]


def test_rejected_rows_are_deleted_in_bounded_numbers_and_their_job_last(queue: Queue) -> None:
    publish_rows(queue, BAD, BAD, BAD)
    queue.later("31 days")

    assert queue.call("prune_jobs", 2) == 2
    assert (jobs(queue), len(rejected(queue))) == (["j"], 1)
    queue.call("prune_jobs", 2)
    assert jobs(queue) == []


def test_rows_that_were_staged_more_than_a_day_ago_are_deleted_in_bounded_numbers(queue: Queue) -> None:
    stage(queue, {}, {}, {})

    queue.later("23 hours")
    assert (queue.call("prune_jobs", 2), staged(queue)) == (0, 3)
    queue.later("2 hours")
    assert (queue.call("prune_jobs", 2), staged(queue)) == (2, 1)
    assert (queue.call("prune_jobs", 2), staged(queue)) == (1, 0)
    assert queue.rows("SELECT FROM messages.publish_attempt") == []


def test_rows_whose_attempt_is_gone_are_deleted_while_others_stage(queue: Queue) -> None:
    gone = [stage(queue, {}, {"reason": "bad", "given": '{"n": 1}'}, job=f"j{n}") for n in range(3)]
    stage(queue, {})
    queue.conn.execute("DELETE FROM messages.publish_attempt WHERE attempt = ANY (%s)", [gone])

    assert (queue.call("prune_jobs", 4), staged(queue)) == (4, 3)
    assert (queue.call("prune_jobs", 4), staged(queue)) == (2, 1)


def test_one_call_deletes_many_old_attempts_and_jobs(queue: Queue) -> None:
    for n in range(5):
        publish_rows(queue, BAD, job=f"published {n}")
        stage(queue, {}, job=f"staged {n}")
    queue.later("31 days")

    queue.call("prune_jobs")

    assert (jobs(queue), staged(queue)) == ([], 0)
    assert queue.rows("SELECT FROM messages.publish_attempt") == []


def test_rows_that_are_being_published_are_skipped(queue: Queue, other: Queue) -> None:
    stage(queue, {})
    other.later("2 days")
    with queue.conn.transaction():
        queue.rows("SELECT FROM messages.publish_attempt FOR UPDATE")

        assert (other.call("prune_jobs"), staged(other)) == (0, 1)


# messages.prune_keys: deletes keys that no message holds any more.


def held(queue: Queue) -> list[str]:
    return [row.key for row in queue.rows("SELECT key FROM messages.held_key ORDER BY key")]


def test_expired_keys_are_deleted_and_the_others_stay(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.held_key "
        "VALUES ('t', 'over', 1, now() - interval '1 s'), ('t', 'held', 2, now() + interval '1 hour')"
    )

    assert queue.call("prune_keys", 1.0) == 1
    assert held(queue) == ["held"]


def test_keys_of_messages_that_were_deleted_by_hand_are_deleted_and_those_of_live_messages_stay(queue: Queue) -> None:
    queue.policy("t", key_ttl="1 hour")
    deleted, waiting, running = (queue.publish(key=key) for key in ("deleted", "waiting", "running"))
    queue.conn.execute("DELETE FROM messages.message WHERE id = %s", [deleted])
    queue.claim_one()

    assert queue.call("prune_keys", 1.0) == 1
    assert held(queue) == ["running", "waiting"]
    assert queue.ids() == [waiting, running]


def test_it_is_bounded(queue: Queue) -> None:
    queue.conn.execute(
        "INSERT INTO messages.held_key SELECT 't', 'k' || n, n, now() - interval '1 s' FROM generate_series(1, 30) AS n"
    )

    assert [queue.call("prune_keys", 1.0, 20) for _ in range(3)] == [20, 10, 0]


def test_a_key_that_another_session_is_taking_is_left(queue: Queue, other: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.held_key VALUES ('t', 'over', 1, now() - interval '1 s')")

    with other.conn.transaction():
        other.conn.execute("UPDATE messages.held_key SET message_id = 2, free_at = NULL")
        swept = queue.call("prune_keys", 1.0)

    assert (swept, held(queue)) == (0, ["over"])


# messages.prune_measures: deletes old measures.


def topics(queue: Queue) -> list[str]:
    return [row.topic for row in queue.rows("SELECT topic FROM messages.measure ORDER BY topic")]


def test_measures_older_than_a_week_are_deleted(queue: Queue) -> None:
    report(queue, {"topic": "old", "success": 1})
    queue.later("6 days")
    report(queue, {"topic": "young", "success": 1})

    assert queue.call("prune_measures") == 0
    queue.later("1 day 1 minute")
    assert queue.call("prune_measures") == 2, "one row of the topic, one of the worker"
    assert topics(queue) == ["young"]


def test_a_call_is_bounded_and_takes_the_oldest(queue: Queue) -> None:
    for day in range(3):
        report(queue, {"topic": f"day {day}", "success": 1})
        queue.later("1 day")
    queue.later("9 days")

    assert queue.call("prune_measures", 2) == 4
    assert topics(queue) == ["day 2"]


# messages.prune_mutexes: deletes names of mutexes and leases that are no longer needed.

NAMES = "SELECT name FROM messages.mutex WHERE name <> '' ORDER BY name"


def prune(queue: Queue) -> int:
    return int(queue.value("SELECT messages.prune_mutexes(100)"))


def test_mutexes_of_topics_without_a_message_are_deleted_and_the_others_stay(queue: Queue) -> None:
    fixed = queue.value("SELECT count(*) FROM messages.mutex")
    for topic in ("empty", "ready", "channels", "running"):
        queue.call("lock_mutex", "topic", topic)
        queue.call("lock_mutex", "channels", topic)
    queue.publish("running")
    queue.claim("running")
    queue.publish("ready")
    queue.publish("channels", channel="c")

    assert prune(queue) == 2

    assert {row.name for row in queue.rows(NAMES)} == {"ready", "channels", "running"}
    assert queue.value("SELECT count(*) FROM messages.mutex WHERE name = ''") == fixed


def test_a_call_deletes_the_mutexes_of_a_thousand_waits_a_second(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.mutex (kind, name) SELECT 'event', n FROM generate_series(1, 5000) AS n")

    assert prune(queue) == 5000


def test_a_held_mutex_stays(queue: Queue, other: Queue) -> None:
    other.call("lock_mutex", "topic", "t")
    with other.conn.transaction():
        other.call("lock_mutex", "topic", "t")

        assert prune(queue) == 0


def test_leases_of_sessions_that_are_gone_are_deleted(own_queue: Queue, own_database: Database) -> None:
    own_queue.conn.execute("INSERT INTO messages.lease (kind, name, lock_key, pid) VALUES ('export', 'gone', 1, 1)")
    Queue(own_database.connect()).call("take_lease", "export", "held")

    assert prune(own_queue) == 1
    assert own_queue.value("SELECT name FROM messages.lease") == "held"


@pytest.mark.parametrize("kind", ["topic", "channels"])
def test_a_deleted_mutex_is_created_again_when_it_is_needed(queue: Queue, kind: str) -> None:
    queue.call("lock_mutex", kind, "t")
    prune(queue)

    assert queue.call("lock_mutex", kind, "t") is True


# prune_pauses: prune_pauses: deletes rows that an expired pause left.


def channels(queue: Queue) -> list[str]:
    return [row.channel for row in queue.rows("SELECT channel FROM messages.channel ORDER BY channel")]


def test_an_expired_pause_leaves_no_row(queue: Queue) -> None:
    queue.call("pause", "mail", channel="over", resume_in="1 minute")
    queue.call("pause", "mail", channel="paused")
    queue.call("pause", "mail", channel="paused longer", resume_in="1 hour")
    queue.later("2 minutes")

    assert queue.call("prune_pauses") == 1

    assert channels(queue) == ["paused", "paused longer"]


def test_a_channel_with_limits_stays(queue: Queue) -> None:
    queue.call("pause", "mail", channel="acme", resume_in="1 minute")
    queue.conn.execute("UPDATE messages.channel SET concurrency = 2")
    queue.later("2 minutes")
    assert queue.call("prune_pauses") == 0
    queue.call("pause", "mail", channel="over", resume_in="1 minute")
    queue.later("2 minutes")

    assert queue.call("prune_pauses") == 1

    assert channels(queue) == ["acme"]


def test_a_row_that_another_session_is_writing_stays(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.channel (topic, channel) VALUES ('mail', 'acme')")

    assert queue.call("prune_pauses") == 0


def test_nothing_is_notified_if_nothing_is_deleted(queue: Queue, listen: Callable[..., Listener]) -> None:
    listener = listen("topic_changed")

    queue.call("prune_pauses")

    assert listener.received() == []


# messages.prune_orphans: lists of predecessors are deleted once their message has left the archive.


def end_after(queue: Queue, count: int, settle: str) -> list[int]:
    """Publish this many messages after another one, end them, and return their ids."""
    before = queue.publish("first")
    queue.settle("complete", queue.claim("first"))
    published = [queue.send(after=[before]).id for _ in range(count)]
    # The flag is lowered while no one waits: then no end looks for lists.
    queue.conn.execute("SELECT setval('messages.awaited_flag', 1)")
    queue.settle(settle, queue.claim(), [None if settle == "complete" else "boom"] * count)
    return published


def left(queue: Queue) -> list[int]:
    return [row.message_id for row in queue.rows("SELECT message_id FROM messages.predecessor_list ORDER BY 1")]


def test_those_of_archived_and_of_live_messages_stay(queue: Queue) -> None:
    done, dead, gone = (end_after(queue, 1, settle)[0] for settle in ("complete", "fail", "complete"))
    live = queue.send(after=[queue.publish("first")]).id
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = %s", [gone])

    queue.call("prune")
    queue.call("prune")

    assert left(queue) == [done, dead, live]


# messages.prune_redrives: the log of redrives is kept as long as it prevents a second redrive.


def logged(queue: Queue) -> list[int]:
    return [row.archived_id for row in queue.rows("SELECT archived_id FROM messages.redrive_log")]


def letters(queue: Queue) -> list[int]:
    return [row.origin_id for row in queue.rows("SELECT origin_id FROM messages.dead_letter")]


def test_a_redrive_is_deleted_only_when_its_day_must_have_left_the_archive(queue: Queue) -> None:
    died = die(queue)
    outcomes(queue, "redrive", [died])
    queue.conn.execute("DELETE FROM messages.message_archive")

    queue.later("31 days")
    assert (queue.call("prune_redrives"), logged(queue)) == (0, [died])
    queue.later("1 day 1 minute")
    assert (queue.call("prune_redrives"), logged(queue)) == (1, [])


def test_the_longest_retention_of_any_topic_decides(queue: Queue) -> None:
    queue.policy("kept", retention="100 days")
    died = die(queue)
    outcomes(queue, "redrive", [died])

    queue.later("90 days")

    assert queue.call("prune_redrives") == 0


def test_while_a_copy_is_live_its_original_and_redrive_are_kept(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    died = die(queue)
    (working,) = queue.claim("t.dlq")
    outcomes(queue, "redrive", [died])
    queue.settle("release", [working])
    queue.conn.execute("DELETE FROM messages.message_archive")

    queue.later("100 days")
    queue.call("prune_redrives")

    assert (logged(queue), letters(queue)) == ([died], [died])
    assert outcomes(queue, "requeue_dead_letters", [copy_of(queue, died).id]) == {working.id: "redriven_before"}


def test_a_dead_letter_whose_copy_ended_is_deleted_in_time(queue: Queue) -> None:
    queue.policy(dead_letter=True)
    ended = [die(queue) for _ in range(20)]
    queue.settle("complete", queue.claim("t.dlq"))
    waiting = die(queue)

    queue.later("100 days")
    for _ in range(200):
        queue.call("prune_redrives")

    assert waiting in letters(queue)
    assert len(set(letters(queue)) & set(ended)) < len(ended) / 2


def test_prune_redrives_a_call_is_bounded(queue: Queue) -> None:
    died = [die(queue) for _ in range(5)]
    outcomes(queue, "redrive", died)
    queue.conn.execute("DELETE FROM messages.message_archive")
    queue.later("100 days")

    assert queue.call("prune_redrives", 3) == 3


def test_a_message_that_an_export_keeps_in_the_archive_is_never_redriven_twice(queue: Queue) -> None:
    died = die(queue)
    export(queue)
    outcomes(queue, "redrive", [died])
    queue.settle("complete", queue.claim())

    queue.later("100 days")
    queue.rows("SELECT * FROM messages.tick()")

    assert queue.archived(died).result == "failed"
    assert outcomes(queue, "redrive", [died]) == {died: "redriven_before"}


def test_rows_that_must_stay_hide_no_others(queue: Queue) -> None:
    kept = [die(queue) for _ in range(3)]
    gone = [die(queue) for _ in range(20)]
    outcomes(queue, "redrive", kept)
    outcomes(queue, "redrive", gone)
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = ANY (%s)", [gone])

    queue.later("100 days")
    for _ in range(200):
        queue.call("prune_redrives", 2)

    assert set(kept) <= set(logged(queue))
    assert len(set(logged(queue)) & set(gone)) < len(gone) / 2


def test_its_cost_depends_on_the_batch(queue: Queue) -> None:
    """However many rows are still in the archive."""
    queue.conn.execute(
        """
        INSERT INTO messages.message_archive (id, topic, priority, created_at, available_at, attempts, result)
        SELECT n, 't', 5, now(), now(), 1, 'failed' FROM generate_series(1, 20000) AS n;
        INSERT INTO messages.redrive_log (archived_id, message_id, redriven_at)
        SELECT n, -n, now() - interval '90 days' + n * interval '1 s' FROM generate_series(1, 20000) AS n
        """
    )

    # A few pages for each checked row, in each day of the archive: no more with ten times as many.
    days = queue.value("SELECT count(*) FROM pg_inherits WHERE inhparent = 'messages.message_archive'::regclass")
    with queue.conn.transaction(force_rollback=True):
        for setting in ("enable_seqscan", "enable_hashjoin", "enable_mergejoin"):
            queue.conn.execute(f"SET LOCAL {setting} = off")
        assert queue.buffers("SELECT messages.prune_redrives(10)") < 20 * 4 * days + 200


# messages.prune_orphans: steps are deleted once their message is neither live nor archived.


def die_with_steps(queue: Queue, count: int = 1) -> list[int]:
    queue.publish_many(count)
    claimed = queue.claim()
    for each in claimed:
        queue.value("SELECT messages.save_step(%s, %s, 's', '1')", [each.id, each.claim_id])
    queue.settle("fail", claimed, ["boom"] * count)
    return [c.id for c in claimed]


def prune_steps_left(queue: Queue) -> list[int]:
    return [row.message_id for row in queue.rows("SELECT message_id FROM messages.step ORDER BY 1")]


def test_steps_of_live_messages_stay_and_those_of_dead_ones_while_their_archive_row_does(queue: Queue) -> None:
    gone, stays = die_with_steps(queue, 2)
    queue.conn.execute("DELETE FROM messages.message_archive WHERE id = %s", [gone])
    queue.publish()
    claimed = queue.claim_one()
    queue.value("SELECT messages.save_step(%s, %s, 's', '1')", [claimed.id, claimed.claim_id])

    queue.call("prune")
    queue.call("prune")

    assert prune_steps_left(queue) == [stays, claimed.id]


# messages.prune_web: deletes old sessions and requests of the web servers.


def test_expired_sessions_and_requests_older_than_a_day_are_deleted_and_the_others_stay(queue: Queue) -> None:
    queue.call("add_token", "shop", bytes(32), ["viewer"])
    for cookie in (b"a" * 32, b"b" * 32):
        queue.call("open_session", bytes(32), cookie, timedelta(hours=1))
    queue.row(
        "UPDATE messages.web_session SET expires_at = clock_timestamp() WHERE digest = %s RETURNING 1", [b"a" * 32]
    )
    for key in ("old", "new"):
        queue.rows("SELECT * FROM messages.begin_request(%s, %s, %s)", ["shop", key, b"1"])
    queue.row("UPDATE messages.web_request SET asked_at = asked_at - interval '25 hours' WHERE key = 'old' RETURNING 1")

    assert queue.call("prune_web") == 2

    assert [row.key for row in queue.rows("SELECT key FROM messages.web_request")] == ["new"]
    assert queue.value("SELECT count(*) FROM messages.web_session") == 1
