"""messages.group_new_alerts: adds new alerts of a sink to its incidents; test_claim_delivery.py shows the same from outside."""

from __future__ import annotations

import pytest
from psycopg.types.json import Jsonb

from tests.server.postgres import Database
from tests.sql.queue import Queue
from tests.sql.sinks import RULES, Sink, raise_alert


@pytest.fixture
def sink(queue: Queue) -> Sink:
    sink = Sink(queue)
    sink.next()
    return sink


def gather(queue: Queue) -> int:
    taken: int = queue.value("SELECT messages.group_new_alerts('ops', %s)", [Jsonb(RULES)])
    return taken


def test_it_takes_new_alerts_and_none_twice(sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    raise_alert(queue)

    assert (gather(queue), gather(queue)) == (2, 0)


def test_alerts_that_were_rolled_back_are_ignored(sink: Sink, queue: Queue, database: Database) -> None:
    undecided = Queue(database.connect(autocommit=False))
    raise_alert(undecided)
    raise_alert(queue)
    assert gather(queue) == 1

    undecided.conn.rollback()

    assert gather(queue) == 0


def test_an_alert_that_was_written_under_a_savepoint_and_commits_late_is_taken_too(
    sink: Sink, queue: Queue, database: Database
) -> None:
    late = Queue(database.connect(autocommit=False))
    late.conn.execute("SELECT pg_current_xact_id()")
    with late.conn.transaction():
        raise_alert(late)
    raise_alert(queue)
    assert gather(queue) == 1

    late.conn.commit()

    assert gather(queue) == 1


def test_a_call_that_is_rolled_back_takes_nothing(sink: Sink, queue: Queue) -> None:
    raise_alert(queue)
    with queue.conn.transaction(force_rollback=True):
        assert gather(queue) == 1

    assert gather(queue) == 1


def test_the_numbers_of_an_incident_are_those_of_its_alerts(sink: Sink, queue: Queue) -> None:
    first = raise_alert(queue, count=3, first_message_id=10, last_message_id=12)
    last = raise_alert(queue, count=2, first_message_id=20, last_message_id=21, sample_error="the latest")

    gather(queue)

    incident = sink.incident()
    assert (incident.count, incident.pending, incident.first_alert_id, incident.last_alert_id) == (5, 5, first, last)
    assert (incident.first_message_id, incident.last_message_id, incident.sample_error) == (10, 21, "the latest")


def test_alerts_of_a_cluster_with_higher_transaction_ids_are_taken_once(queue: Queue) -> None:
    raise_alert(queue)
    queue.conn.execute("UPDATE messages.alert SET xid = '9000000000'")
    sink = Sink(queue)
    assert len(sink.deliver_all()) == 1
    raise_alert(queue)

    assert (gather(queue), gather(queue)) == (1, 0)
