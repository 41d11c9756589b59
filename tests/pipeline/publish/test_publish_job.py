"""A job that publishes: what its driver does, without Spark."""

from __future__ import annotations

from uuid import uuid4

import pytest

from pgrouse.errors import ConfigError, TopicFull
from pyspark_pgrouse.errors import StageLost, TooManyRejected
from pyspark_pgrouse.options import Operation, Options
from pyspark_pgrouse.publish.batch import PublishWriter
from pyspark_pgrouse.publish.job import JobResult
from pyspark_pgrouse.publish.stage import Staged
from pyspark_pgrouse.publish.stream import PublishStreamWriter
from tests.pipeline.publishing import PLAIN, publish, rows, schema, writer
from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_staged_rows_are_published_when_all_tasks_are_done(database: Database, queue: Queue) -> None:
    job = writer(database)
    staged = [job.write(iter([rows("1", "2"), rows("3")])), job.write(iter([rows("4")])), job.write(iter([]))]
    assert queue.ids() == []

    job.commit([*staged])

    assert job.outcome == JobResult(published=4, ignored=0, dropped=0, rejected=0, is_repeat=False)
    assert sorted(queue.message(i).payload for i in queue.ids()) == [1, 2, 3, 4]


def test_a_commit_whose_answer_was_lost_can_be_repeated(database: Database, queue: Queue) -> None:
    job = writer(database)
    staged = [job.write(iter([rows("1")]))]

    job.commit([*staged])
    job.commit([*staged])
    assert len(queue.ids()) == 1

    # Each write without a key is a job of its own.
    again = writer(database)
    again.commit([again.write(iter([rows("1")]))])
    assert len(queue.ids()) == 2


def test_one_topic_applies_to_all_rows(database: Database, queue: Queue) -> None:
    job = writer(database, {"payload": "string"}, topic="all")

    job.commit([job.write(iter([rows("1").select(["payload"])]))])

    assert queue.message(*queue.ids()).topic == "all"


def test_a_failed_job_leaves_nothing(database: Database, queue: Queue) -> None:
    job = writer(database)
    staged = [job.write(iter([rows("1")])), None]

    job.abort(staged)

    assert (queue.ids(), queue.rows("SELECT FROM messages.publish_stage")) == ([], [])


def test_an_outage_does_not_hide_why_the_job_failed(database: Database) -> None:
    job = writer(database)
    gone = PublishWriter.__new__(PublishWriter)
    gone.options = Options.parse({"dsn": "host=127.0.0.1 port=1"}, Operation.WRITE)

    gone.abort([Staged(job.job, str(uuid4()), 1)])


def test_a_stage_emptied_by_a_crash_is_reported_and_publishes_no_part(database: Database, queue: Queue) -> None:
    job = writer(database)
    staged = [job.write(iter([rows("1")])), job.write(iter([rows("2")]))]
    queue.conn.execute("DELETE FROM messages.publish_stage WHERE payload = '1'")

    with pytest.raises(StageLost, match="1 of 2 rows are missing: nothing was published"):
        job.commit([*staged])

    assert queue.ids() == []


def test_a_full_topic_is_reported_by_its_error(database: Database, queue: Queue) -> None:
    queue.policy(max_depth=1)

    with pytest.raises(TopicFull, match="topic t is full"):
        publish(database, rows("1", "2"))


def test_more_rejected_rows_than_allowed_fail_the_job(database: Database, queue: Queue) -> None:
    with pytest.raises(
        TooManyRejected, match="has 1 rows that cannot be published, and 0 would be let pass: the first"
    ):
        publish(database, rows("1", "nope"), maxRejected=0)

    assert queue.ids() == []


@pytest.mark.parametrize("kind", [PublishWriter, PublishStreamWriter])
def test_a_queue_cannot_be_overwritten(database: Database, kind: type) -> None:
    with pytest.raises(ConfigError, match="cannot be overwritten"):
        kind(Options.parse({"dsn": database.dsn}, Operation.WRITE), schema(PLAIN), overwrite=True)


def test_a_stream_has_no_key_of_its_own(database: Database) -> None:
    with pytest.raises(ConfigError, match="option job is not for streams"):
        PublishStreamWriter(
            Options.parse({"dsn": database.dsn, "job": "j"}, Operation.WRITE), schema(PLAIN), overwrite=False
        )
