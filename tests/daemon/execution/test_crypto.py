"""Encrypted messages: handlers get what was published, no one else can read it, and keys are rotated without a stop."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgrouse import Cipher, NewMessage, publish, publish_many
from pgrouse.client.encryption.key_rotation import RotationResult, rotate
from pgrouse.crypto.envelope import ENCRYPTED_BY, ContentKind
from tests.daemon.process import HANDLERS as FOLDER
from tests.daemon.process import Daemon, Fleet, Journal
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

OLD, NEW = os.urandom(32), os.urandom(32)
ENVIRON = {"OLD_KEY": base64.b64encode(OLD).decode(), "NEW_KEY": base64.b64encode(NEW).decode()}
HANDLERS = {
    "pay": "encrypted:pay",
    "pay.steps": "encrypted:in_two_steps",
    "pay.transaction": "encrypted:in_a_transaction",
    "pay.child": {"handler": "encrypted:bytes_in_a_child", "isolation": "process", "concurrency": 1},
    "pay.batch": {"handler": "encrypted:batch", "batch_size": 10},
    "pay.fail": "encrypted:fail",
    "mails": {"handler": "encrypted:pay", "subscriptions": ["pay.published"]},
}
HOUR = timedelta(hours=1)
READY = "SELECT count(*) FROM messages.message WHERE available_at <= clock_timestamp()"
Start = Callable[..., Daemon]


def sections(current: str, *names: str, **more: Any) -> dict[str, Any]:
    keys = {f"crypto.keys.{name}": {"env": f"{name.upper()}_KEY"} for name in names}
    return {"crypto": {"current": current, "topics": ["pay", "pay.*"], **more}, **keys}


@pytest.fixture
def old() -> Cipher:
    return Cipher({"old": OLD}, "old", ["pay", "pay.*"])


@pytest.fixture
def work(start: Start) -> Start:
    """`work("old", "old", "new")` starts a daemon that encrypts with the first key and has the others."""
    return lambda current, *names, topics=HANDLERS, **more: start(
        topics, environ=ENVIRON, sections=sections(current, *names, **more), log_level="debug", prefetch=0
    )


def dump(queue: Queue) -> str:
    """Everything that a reader of the tables sees; bytes in hexadecimal, and as they are."""
    tables = ("message", "message_archive", "alert", "worker")
    return "".join(str(queue.rows(f"SELECT t::text FROM messages.{table} AS t")) for table in tables)


def test_every_executor_gets_the_published_payload_and_stores_nothing_readable(
    work: Start, queue: Queue, database: Database, journal: Journal, old: Cipher
) -> None:
    queue.policy("pay.steps", max_attempts=3, backoff={"kind": "none"})
    daemon = work("old", "old")
    conn = database.connect()
    card = {"number": "card-4711-0815"}

    paid = publish(conn, "pay", card, cipher=old)
    steps = publish(conn, "pay.steps", "card-4711-0815", cipher=old)
    inside = publish(conn, "pay.transaction", card, cipher=old)
    child = publish(conn, "pay.child", body=b"card-4711-0815", cipher=old)
    publish_many(conn, [NewMessage(topic="pay.batch", payload=card) for _ in range(3)], cipher=old)

    ended = {each: eventually(lambda each=each: queue.archived(each)) for each in (paid, steps, inside, child)}
    batched = eventually(lambda: len(found := journal.entries("batched")) == 3 and found)
    assert [each.result for each in ended.values()] == ["success"] * 4
    assert journal.entry("paid")["number"] == "card-4711-0815"
    assert [(e["state"], e["payload"]) for e in journal.entries("step")] == [
        (None, "card-4711-0815"),
        ({"secret-step": 2}, "card-4711-0815"),
    ]
    assert (journal.entry("child")["body"], journal.entry("child")["key"]) == ("card-4711-0815", None)
    assert {each["number"] for each in batched} == {"card-4711-0815"}
    outputs = [
        old.decrypt_json(each.topic, json.dumps(each.output), ContentKind.OUTPUT)
        for each in map(ended.get, (paid, inside, child))
    ]
    assert [json.loads(each) for each in outputs] == [card, card, "card-4711-0815"]
    eventually(lambda: queue.value("SELECT count(*) FROM messages.message_archive") == 7)
    seen = dump(queue) + daemon.log.read_text()
    assert "card-4711" not in seen
    assert b"card-4711".hex() not in seen
    assert "secret-step" not in seen
    assert not any(key in seen for key in ENVIRON.values())


def test_keys_are_rotated_under_load_without_loss(
    fleet: Fleet, database: Database, queue: Queue, journal: Journal, work: Start
) -> None:
    both_old = Cipher({"old": OLD, "new": NEW}, "old", ["pay"])
    both_new = Cipher({"old": OLD, "new": NEW}, "new", ["pay"])
    conn = database.connect()
    topics = {"pay": "encrypted:pay"}
    first = work("old", "old", "new", topics=topics)
    current, stop, published = [both_old], threading.Event(), []

    def begin(key: str, *keys: str) -> Daemon:
        """Start a daemon. Under load it need not become idle, so that is not awaited."""
        daemon = fleet.launch(topics, dsn=database.dsn, environ=ENVIRON, sections=sections(key, *keys), prefetch=0)
        daemon.event("daemon.started", within_s=60)
        return daemon

    def go_on() -> None:
        with psycopg.connect(database.dsn, autocommit=True) as own:
            while not stop.wait(0.005):
                # The backlog must be processed in the end.
                if own.execute(READY).fetchone()[0] > 100:
                    continue
                published.append(publish(own, "pay", {"number": str(len(published))}, cipher=current[0]))

    publisher = threading.Thread(target=go_on)
    publisher.start()
    try:
        # Some wait for a long time, including retried ones.
        late = [publish(conn, "pay", {"number": "late"}, cipher=both_old, delay=HOUR) for _ in range(30)]
        eventually(lambda: len(published) > 30)
        current[0] = both_new
        seen = len(published)
        begin("new", "old", "new")
        assert first.stop() == 0
        rotated = RotationResult()
        for each in rotate(conn, both_new):
            rotated.add(each)
        assert rotated.done >= 30
        assert (rotated.missing, rotated.broken) == ({}, [])
        eventually(lambda: len(published) > seen + 30)
        # No message waits under the old key any more: it is removed.
        eventually(lambda: not [r for r in rotate(conn, both_new) if r.done or r.left])
        last = begin("new", "new")
        assert fleet.daemons[1].stop() == 0
        seen = len(published)
        eventually(lambda: len(published) > seen + 10)
    finally:
        stop.set()
        publisher.join()
    queue.call("retry_now", late)

    eventually(lambda: queue.value("SELECT count(*) FROM messages.message") == 0, within_s=60)
    results = queue.rows("SELECT id, result, attempts FROM messages.message_archive")
    assert {each.id for each in results} == {*published, *late}
    assert {(each.result, each.attempts) for each in results} == {("success", 1)}
    assert not [event for daemon in fleet.daemons for event in daemon.events("crypto.key_missing")]
    assert last.alive


def test_a_message_whose_key_is_missing_waits_for_it_and_uses_no_attempt(
    work: Start, queue: Queue, database: Database, journal: Journal
) -> None:
    daemon = work(
        "old", "old", topics={"pay": "encrypted:pay", "pay.batch": {"handler": "encrypted:batch", "batch_size": 2}}
    )
    new = Cipher({"new": NEW}, "new")
    conn = database.connect()
    waiting = [publish(conn, topic, {"number": "1"}, cipher=new) for topic in ("pay", "pay.batch")]

    warned = eventually(lambda: len(found := daemon.events("crypto.key_missing")) == 2 and found)
    eventually(
        lambda: queue.value("SELECT count(*) FROM messages.message WHERE available_at > now() + interval '30 s'") == 2
    )

    assert {(each["key"], each["message_id"]) for each in warned} == {("new", each) for each in waiting}
    assert [(m.attempts, m.claim_id) for m in map(queue.message, waiting)] == [(0, None)] * 2
    work("new", "new", topics={"pay": "encrypted:pay", "pay.batch": {"handler": "encrypted:batch", "batch_size": 2}})
    assert daemon.stop() == 0
    queue.call("retry_now", waiting)
    assert {eventually(lambda each=each: queue.archived(each)).result for each in waiting} == {"success"}


@pytest.mark.long
def test_a_message_waits_for_the_key_of_a_step_and_the_step_does_not_run_again(
    work: Start, queue: Queue, database: Database, journal: Journal, old: Cipher
) -> None:
    published = publish(database.connect(), "pay", 1, cipher=old)
    kept = Cipher({"new": NEW}, "new").encrypt_json("pay", '"receipt"', ContentKind.OUTPUT)
    queue.conn.execute(
        "INSERT INTO messages.step (message_id, name, result, attempt) VALUES (%s, 'charge', %s, 1)", [published, kept]
    )
    topics = {"pay": {"handler": "encrypted:charge", "ack_policy": "ack"}}
    daemon = work("old", "old", topics=topics)

    assert daemon.event("crypto.key_missing")["key"] == "new"
    eventually(lambda: queue.value("SELECT available_at > now() + interval '30 s' FROM messages.message"))
    assert (queue.message(published).attempts, queue.message(published).claim_id) == (0, None)
    assert daemon.stop() == 0
    work("old", "old", "new", topics=topics)
    queue.call("retry_now", [published])
    ended = eventually(lambda: queue.archived(published))
    assert old.decrypt_json("pay", json.dumps(ended.output), ContentKind.OUTPUT) == '"receipt"'
    assert not journal.entries("charged")


@pytest.mark.long
def test_a_handler_gets_the_outputs_of_its_predecessors_decrypted_and_waits_for_their_key(
    work: Start, queue: Queue, database: Database, journal: Journal, old: Cipher
) -> None:
    first = work("old", "old", topics={"pay": "encrypted:pay"})
    conn = database.connect()
    paid = publish(conn, "pay", {"number": "1"}, cipher=old)
    joined = publish(conn, "join", 0, after=[paid])
    eventually(lambda: queue.archived(paid))
    assert first.stop() == 0

    without = work("new", "new", topics={"join": {"handler": "encrypted:join", "ack_policy": "ack"}})
    assert without.event("crypto.key_missing")["key"] == "old"
    eventually(lambda: queue.value("SELECT available_at > now() + interval '30 s' FROM messages.message"))
    assert without.stop() == 0
    work("new", "new", "old", topics={"join": "encrypted:join"})
    queue.call("retry_now", [joined])

    assert eventually(lambda: queue.archived(joined)).result == "success"
    assert [entry["outputs"] for entry in journal.entries("joined")] == [[{"number": "1"}]]


def test_headers_of_an_encrypted_message_may_be_passed_on(
    work: Start, queue: Queue, database: Database, old: Cipher
) -> None:
    work("old", "old", topics={"pay": "encrypted:pass_on", "plain": "encrypted:pay"})

    publish(database.connect(), "pay", {"number": "1"}, headers={"a": 1}, cipher=old)

    ended = eventually(lambda: queue.rows("SELECT result, headers FROM messages.message_archive WHERE topic = 'plain'"))
    assert [(each.result, each.headers) for each in ended] == [("success", {"a": 1})]


def test_a_tampered_message_is_rejected_and_the_others_run(
    work: Start, queue: Queue, database: Database, old: Cipher
) -> None:
    conn = database.connect()
    single, batched = (publish(conn, topic, {"number": "1"}, cipher=old) for topic in ("pay", "pay.batch"))
    moved = publish(conn, "pay.transaction", {"number": "1"}, cipher=old)
    conn.execute(
        "UPDATE messages.message SET body = set_byte(body, length(body) - 1, get_byte(body, length(body) - 1) # "
        "1) WHERE id < %s",
        [moved],
    )
    conn.execute("UPDATE messages.message SET topic = 'pay' WHERE id = %s", [moved])
    good = publish(conn, "pay", {"number": "2"}, cipher=old)

    work("old", "old")

    for each in (single, batched, moved):
        ended = eventually(lambda each=each: queue.archived(each))
        assert ended.result == "rejected"
        assert ended.error.startswith("this message cannot be decrypted: ")
    assert eventually(lambda: queue.archived(good)).result == "success"


@pytest.mark.long
def test_copies_redrives_and_edits_of_headers_can_all_be_decrypted(
    work: Start, queue: Queue, database: Database, journal: Journal, old: Cipher
) -> None:
    queue.policy("pay.fail", dead_letter=True)
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('pay.published', 'mails')")
    conn = database.connect()
    died = publish(conn, "pay.fail", {"number": "7"}, cipher=old)
    fanned = publish(conn, "pay.published", {"number": "8"}, cipher=old)
    edited = publish(conn, "pay", {"number": "9"}, cipher=old, delay=HOUR)
    assert queue.value("SELECT messages.edit(%s, NULL, '{\"a\": 1}')", [edited]) == "edited"
    queue.call("retry_now", [edited])

    work("old", "old", topics={**HANDLERS, "pay.fail.dlq": "encrypted:pay"}, error_detail="type")

    dead = eventually(lambda: queue.archived(died))
    assert dead.error == "ValueError: its text is not stored (crypto.error_detail)"
    assert eventually(lambda: {"7", "8", "9"} <= {each["number"] for each in journal.entries("paid")})
    assert queue.archived(edited).headers == {"a": 1, ENCRYPTED_BY: "old"}
    assert eventually(lambda: queue.archived(fanned)).result == "success"
    again = queue.row(
        "SELECT * FROM messages.redrive_edited(%s, p_headers => '{\"b\": 2}', p_topic => 'pay.fail')", [died]
    )
    assert again.outcome == "redriven"
    assert eventually(lambda: queue.archived(again.message_id)).error.startswith("ValueError")


def test_a_daemon_whose_key_cannot_be_read_does_not_start_and_names_the_key(fleet: Fleet, database: Database) -> None:
    daemon = fleet.launch({"pay": "encrypted:pay"}, dsn=database.dsn, sections=sections("old", "old"))

    assert daemon.exit_code() == 78
    assert "key old: the environment variable OLD_KEY is not set" in daemon.log.read_text()


@pytest.mark.parametrize(("error_detail", "is_logged"), [("type", False), ("text", True)])
def test_the_traceback_of_an_encrypted_message_is_logged_and_reported_only_if_that_is_wanted(
    start: Start,
    queue: Queue,
    database: Database,
    journal: Journal,
    old: Cipher,
    error_detail: str,
    is_logged: bool,
) -> None:
    hooked = {"handlers": {"import_path": [str(FOLDER)], "on_death": ["hooks:on_death"]}}
    daemon = start(
        {"pay.fail": "hooks:fail"},
        environ=ENVIRON,
        sections={**sections("old", "old", error_detail=error_detail), **hooked},
    )

    died = publish(database.connect(), "pay.fail", "card-4711-0815", cipher=old)

    failed = daemon.event("attempt.failed", message_id=died)
    assert ("exception" in failed) == is_logged
    assert ("card-4711-0815" in journal.entry("death", died)["exception"]) == is_logged
    assert ("card-4711-0815" in daemon.log.read_text()) == is_logged
