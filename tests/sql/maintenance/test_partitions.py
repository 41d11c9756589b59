"""Partitions of the archive: made ahead, dropped as whole days."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from psycopg import errors

from tests.server.postgres import Database
from tests.sql.exports import export
from tests.sql.queue import Background, Queue

# messages.maintain_partitions: the days of the archive.

pytestmark = pytest.mark.every_server

PARTITIONS = (
    "SELECT relname FROM pg_class WHERE relname ~ '^message_archive_[0-9]{8}$' AND relispartition ORDER BY relname"
)


def today(queue: Queue) -> datetime:
    now: datetime = queue.call("now")
    return now.astimezone(UTC)


def names(first: datetime, days: int) -> list[str]:
    return [f"message_archive_{first + timedelta(days=n):%Y%m%d}" for n in range(days)]


def partitions(queue: Queue) -> list[str]:
    return [row.relname for row in queue.rows(PARTITIONS)]


def archive(queue: Queue, message_id: int, archived_at: str, result: str = "success") -> None:
    queue.conn.execute(
        """
        INSERT INTO messages.message_archive (
          id, topic, priority, payload, created_at, available_at, attempts, result, archived_at)
        VALUES (%s, 't', 5, '{"n": 1}', now(), now(), 1, %s, messages.now() + %s::interval)
        """,
        [message_id, result, archived_at],
    )


def lies_in(queue: Queue, message_id: int) -> str:
    where: str = queue.value(
        "SELECT tableoid::regclass::text FROM messages.message_archive WHERE id = %s", [message_id]
    )
    return where.removeprefix("messages.")


def test_an_installation_begins_with_today_and_a_week_ahead(queue: Queue) -> None:
    assert partitions(queue) == names(today(queue), 8)


def test_each_day_one_more_is_created(queue: Queue) -> None:
    first = today(queue)
    queue.later("1 day")

    assert queue.call("maintain_partitions") == 1
    assert partitions(queue) == names(first, 9)


def test_the_given_number_of_days_ahead_is_created(queue: Queue) -> None:
    assert queue.call("maintain_partitions", 10) == 3
    assert partitions(queue) == names(today(queue), 11)


def test_a_message_that_is_settled_today_is_in_todays_partition(queue: Queue) -> None:
    published = queue.publish()

    queue.settle("complete", queue.claim())

    assert lies_in(queue, published) in names(today(queue) - timedelta(days=1), 3)


@pytest.mark.parametrize(
    ("time_zone", "date_style"),
    [
        ("UTC", "Postgres"),
        ("Pacific/Kiritimati", "German"),
        ("Etc/GMT+12", "SQL, DMY"),
        ("America/New_York", "SQL, MDY"),
    ],
)
def test_days_are_those_of_utc_whatever_the_time_zone_of_the_session(
    queue: Queue, time_zone: str, date_style: str
) -> None:
    queue.conn.execute(
        "SELECT set_config('TimeZone', %s, false), set_config('DateStyle', %s, false)", [time_zone, date_style]
    )
    queue.later("1 day")

    queue.call("maintain_partitions")

    queue.conn.execute("SET TimeZone = 'UTC'; SET DateStyle = 'ISO'")
    name = partitions(queue)[-1]
    day = datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC)
    assert queue.value("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE relname = %s", [name]) == (
        f"FOR VALUES FROM ('{day:%Y-%m-%d} 00:00:00+00') TO ('{day + timedelta(days=1):%Y-%m-%d} 00:00:00+00')"
    )


def test_a_day_without_a_partition_fails_no_settle(queue: Queue) -> None:
    archive(queue, 1, "30 days")

    assert lies_in(queue, 1) == "message_archive_default"


def test_rows_in_the_default_partition_move_into_their_day_unchanged(queue: Queue) -> None:
    archive(queue, 1, "8 days", "failed")
    archive(queue, 2, "30 days")
    before = queue.archived(1)
    queue.later("1 day")

    queue.call("maintain_partitions")

    assert queue.archived(1) == before
    assert lies_in(queue, 1) == names(today(queue) + timedelta(days=7), 1)[0]
    assert lies_in(queue, 2) == "message_archive_default"


def test_moved_rows_write_no_second_alert(queue: Queue) -> None:
    archive(queue, 1, "8 days", "failed")
    queue.conn.execute("DELETE FROM messages.alert")
    queue.later("1 day")

    queue.call("maintain_partitions")

    assert queue.rows("SELECT * FROM messages.alert") == []


def test_a_new_partition_has_the_indexes_checks_and_defaults_of_the_archive(queue: Queue) -> None:
    queue.later("1 day")
    queue.call("maintain_partitions")
    newest = f"messages.{partitions(queue)[-1]}"

    of = "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass"
    assert queue.value(of, [newest]) == queue.value(of, ["messages.message_archive"]) == 5
    of = "SELECT count(*) FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass"
    assert queue.value(of, [newest]) == queue.value(of, ["messages.message_archive"]) == 2
    archive(queue, 1, "7 days")
    assert lies_in(queue, 1) == newest.removeprefix("messages.")
    assert queue.archived(1).archive_xid is not None


def test_days_after_the_retention_are_dropped_as_a_whole(queue: Queue) -> None:
    first = today(queue)
    archive(queue, 1, "0 days")
    archive(queue, 2, "2 days")

    queue.later("30 days")
    queue.call("maintain_partitions", 0)
    assert queue.archived(1) is not None

    queue.later("1 day")
    assert queue.call("maintain_partitions", 0) >= 1
    assert (queue.archived(1), queue.archived(2) is None) == (None, False)
    assert names(first, 1)[0] not in partitions(queue)


def test_the_longest_retention_of_any_topic_decides(queue: Queue) -> None:
    archive(queue, 1, "0 days")
    queue.policy("kept", retention="100 days")

    queue.later("90 days")
    queue.call("maintain_partitions", 0)
    assert queue.archived(1) is not None

    queue.later("11 days")
    queue.call("maintain_partitions", 0)
    assert queue.archived(1) is None


def test_the_default_partition_is_never_dropped(queue: Queue) -> None:
    queue.later("1000 days")

    queue.call("maintain_partitions", 0)

    archive(queue, 1, "30 days")
    assert lies_in(queue, 1) == "message_archive_default"


def test_a_settle_that_commits_into_the_default_partition_does_not_fail_the_creation_of_its_day(
    own_database: Database,
) -> None:
    queue, maker, watcher = (Queue(own_database.connect()) for _ in range(3))
    background = Background(watcher.conn)
    maker.conn.execute("ALTER FUNCTION messages.maintain_partitions SET lock_timeout = '60s'")
    maker.later("1 day")
    archive(queue, 1, "8 days")

    with queue.conn.transaction():
        archive(queue, 2, "8 days")
        made = background.start_blocked(maker, maker.call, "maintain_partitions")

    assert made.result(timeout=60) == 1
    assert {lies_in(queue, 1), lies_in(queue, 2)} == {partitions(queue)[-1]}


def test_a_long_reader_of_the_archive_delays_settles_for_at_most_a_tenth_of_a_second(
    queue: Queue, other: Queue
) -> None:
    archive(queue, 1, "0 days")
    queue.later("100 days")

    with other.conn.transaction():
        other.rows("SELECT count(*) FROM messages.message_archive")
        # While it waits for its lock every settle waits behind it: so it gives up.
        with pytest.raises(errors.LockNotAvailable):
            queue.call("maintain_partitions", 0)

    assert "lock_timeout=100ms" in queue.value(
        "SELECT proconfig FROM pg_proc WHERE oid = 'messages.maintain_partitions'::regproc"
    )
    assert queue.call("maintain_partitions", 0) > 0


def test_a_settle_that_waits_for_a_row_of_the_same_tick_is_never_cancelled_as_a_deadlock(
    queue: Queue, other: Queue, background: Background
) -> None:
    """The settle holds its lock on the archive and waits for the tick's row.

    The tick needs an exclusive lock on the archive.
    """
    archive(queue, 1, "0 days")
    published = queue.publish(max_attempts=5)
    held = queue.claim()
    queue.later("100 days")
    # However long the machine takes from one step to the next: after this time a deadlock would be found, by the settle
    # first.
    for each in (queue, other):
        each.conn.execute("SET deadlock_timeout = '20s'")

    with queue.conn.transaction():
        assert queue.call("expire_locks") == 1
        settle = background.start_blocked(other, other.settle, "complete", held)
        did = {row.task: row.count for row in queue.rows("SELECT * FROM messages.tick()")}

    assert did["maintain_partitions"] == -1
    assert settle.result(timeout=60) == [published]


def test_rows_of_past_days_stay_in_the_default_partition_and_can_be_read_there(queue: Queue) -> None:
    archive(queue, 1, "-3 days")

    assert queue.call("maintain_partitions") == 0
    assert lies_in(queue, 1) == "message_archive_default"
    assert queue.archived(1) is not None


def test_columns_that_a_later_version_adds_are_moved_too(own_database: Database) -> None:
    queue = Queue(own_database.connect())
    queue.conn.execute("ALTER TABLE messages.message_archive ADD COLUMN extra text DEFAULT 'x', DROP COLUMN progress")
    archive(queue, 1, "8 days")
    queue.later("1 day")

    queue.call("maintain_partitions")

    assert lies_in(queue, 1) == partitions(queue)[-1]
    assert queue.archived(1).extra == "x"


def test_a_day_that_an_export_has_not_read_stays_until_it_has(queue: Queue) -> None:
    archive(queue, 1, "0 days")
    archive(queue, 2, "0 days")
    export(queue, "behind", upto=1)
    export(queue, "ahead", upto=2)
    queue.later("32 days")

    queue.call("maintain_partitions", 0)
    assert queue.archived(1) is not None

    queue.call("delete_export", "behind")
    queue.call("maintain_partitions", 0)
    assert queue.archived(1) is None


def test_a_day_without_unread_rows_is_dropped_although_an_export_is_behind(queue: Queue) -> None:
    first = today(queue)
    archive(queue, 1, "3 days")
    export(queue)
    queue.later("35 days")

    queue.call("maintain_partitions", 0)

    assert names(first, 1)[0] not in partitions(queue)
    assert queue.archived(1) is not None


def test_rows_that_commit_into_a_day_while_it_waits_to_be_dropped_are_not_lost(own_database: Database) -> None:
    queue, maker, watcher = (Queue(own_database.connect()) for _ in range(3))
    background = Background(watcher.conn)
    maker.conn.execute("ALTER FUNCTION messages.maintain_partitions SET lock_timeout = '60s'")
    archive(queue, 1, "0 days")
    export(queue, upto=1)
    maker.later("32 days")

    with queue.conn.transaction():
        archive(queue, 2, "0 days")
        made = background.start_blocked(maker, maker.call, "maintain_partitions", 0)
    made.result(timeout=60)

    assert queue.archived(2) is not None


def test_a_partition_of_another_role_is_left_alone_and_all_others_are_maintained(own_queue: Queue) -> None:
    queue = own_queue
    first = today(queue)
    day, next_day = first - timedelta(days=3), first - timedelta(days=2)
    foreign = f"message_archive_{day:%Y%m%d}"
    queue.conn.execute(
        f"CREATE TABLE messages.{foreign} PARTITION OF messages.message_archive "
        f"FOR VALUES FROM ('{day:%Y-%m-%d}Z') TO ('{next_day:%Y-%m-%d}Z')".encode()
    )
    archive(queue, 1, "-3 days")
    archive(queue, 2, "0 days")
    export(queue, upto=2)
    queue.later("40 days")

    ran = {row.task: row.count for row in queue.rows("SELECT * FROM messages.tick()")}
    found = queue.rows("SELECT level, what, fix FROM messages.examine_archive() WHERE code = 'partitions'")

    assert ran["maintain_partitions"] > 0
    assert ran["purge"] >= 0
    assert (queue.archived(1) is None, queue.archived(2)) == (False, None)
    assert queue.row("SELECT * FROM messages.purge_archive(messages.now())").deleted == 0
    (wrong,) = [row for row in found if row.level != "ok"]
    assert foreign in wrong.what
    queue.conn.execute(wrong.fix.encode())
    queue.call("maintain_partitions", 0)
    assert queue.archived(1) is None
