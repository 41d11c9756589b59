"""docs/guides.md: its blocks run as they stand, and do what the text says."""

from __future__ import annotations

import hmac
import sys
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from types import ModuleType
from typing import Any

import psycopg
import pytest

from pgrouse.client.configuration_change import apply
from pgrouse.config import config
from pgrouse.handlers.discovery import with_declared
from pgrouse.testing import at, drain
from tests.docs.page import Page
from tests.server.postgres import Database

PAGE = Page("docs/guides.md")


@dataclass
class Answer:
    """What another server answers."""

    status_code: int
    headers: dict[str, str] = field(default_factory=dict)

    def raise_for_status(self) -> None:
        if self.status_code >= 400:
            raise RuntimeError(f"the server answered {self.status_code}")


class Http:
    """A client whose answers are set by the test, and which keeps the calls."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.calls: list[dict[str, Any]] = []

    async def put(self, url: str, **options: Any) -> Answer:
        self.calls.append({"url": url, **options})
        return self.answers.pop(0)

    post = put


class Guide:
    """The blocks of the page as a module, whose policies and schedules are in force."""

    def __init__(self, database: Database, http: Http) -> None:
        self.conn, self.module = database.connect(), ModuleType("guides")
        self.names = vars(self.module)
        self.names |= {
            "psycopg": psycopg,
            "dsn": database.dsn,
            "http": http,
            "secret": b"secret",
            "receivers": ["https://a.example", "https://b.example"],
            "split": lambda path: [f"{path}.1", f"{path}.2"],
            "encode_part": lambda part: part,
        }
        for block in (each for each in PAGE.blocks if each.kind == "python runnable"):
            exec(compile("\n" * block.line + block.text, PAGE.path, "exec"), self.names)

    def put_in_force(self) -> None:
        apply(self.conn, with_declared(config.load(environ={}, overrides={"handlers": {"modules": ["guides"]}})))

    def publish(self, topic: str, payload: Any) -> None:
        self.names[topic].publish(self.conn, payload)

    def drain(self, topic: str) -> list[Any]:
        return list(drain(self.conn, [self.names[topic]]))


@pytest.fixture
def http() -> Http:
    return Http()


@pytest.fixture
def guide(database: Database, http: Http, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Guide:
    made = Guide(database, http)
    monkeypatch.setitem(sys.modules, "guides", made.module)
    monkeypatch.chdir(tmp_path)
    made.put_in_force()
    return made


def test_an_api_says_how_long_to_wait_and_what_is_final(guide: Guide, http: Http) -> None:
    http.answers = [Answer(404)]
    guide.publish("update_customer", {"id": "8"})
    assert [each.outcome for each in guide.drain("update_customer")] == ["reject"]
    assert http.calls[0]["url"] == "https://crm.example.com/customers/8"

    http.answers = [Answer(429, {"Retry-After": "7"}), Answer(503), Answer(200)]
    guide.publish("update_customer", {"id": "7"})
    # Ten a second: the next one may start a tenth of a second after the first.
    with at(guide.conn, "1s"):
        [limited] = guide.drain("update_customer")
    assert (limited.outcome, limited.after) == ("retry", timedelta(seconds=7))
    with at(guide.conn, "9s"):
        [down] = guide.drain("update_customer")
    assert (down.outcome, down.after) == ("retry", None)
    with at(guide.conn, "1h"):
        assert [each.outcome for each in guide.drain("update_customer")] == ["complete"]


def test_an_event_that_is_sent_again_is_one_message_even_after_it_was_worked(guide: Guide) -> None:
    event = {"id": "evt_1", "type": "paid"}
    route = next(each for each in guide.names["app"].routes if each.path == "/hooks/payments")
    assert route.endpoint is guide.names["receive"]

    for _ in range(2):
        guide.names["receive"](event)
    assert [each.output for each in guide.drain("work_event")] == ["paid"]
    guide.names["receive"](event)

    assert guide.drain("work_event") == []


def test_each_receiver_gets_the_event_with_a_signature_and_the_same_id_in_each_attempt(
    guide: Guide, http: Http
) -> None:
    http.answers = [Answer(500), Answer(200)]
    first, second = guide.drain("send_webhook")
    assert (first.outcome, second.outcome) == ("retry", "complete")
    http.answers = [Answer(200)]
    with at(guide.conn, "1h"):
        [again] = guide.drain("send_webhook")

    assert again.id == first.id
    assert [call["url"] for call in http.calls] == ["https://a.example", "https://b.example", "https://a.example"]
    assert len({call["headers"]["X-Event-Id"] for call in http.calls}) == 2
    call = http.calls[0]
    assert call["headers"]["X-Signature"] == hmac.new(b"secret", call["content"], sha256).hexdigest()


def test_the_report_is_published_every_morning(guide: Guide) -> None:
    row = guide.conn.execute("SELECT cron, time_zone, missed::text FROM messages.schedule").fetchone()

    assert row == ("0 7 * * *", "Europe/Berlin", "once")


def test_long_work_does_no_step_twice(guide: Guide, database: Database) -> None:
    parts: list[str] = []

    def encode_part(part: str) -> str:
        parts.append(part)
        if len(parts) == 2:
            raise RuntimeError("the encoder crashed")
        return part

    guide.names["encode_part"] = encode_part
    guide.publish("encode", {"path": "film"})

    # Async handlers have an own connection for their steps.
    [crashed] = drain(database.dsn, [guide.names["encode"]])
    guide.conn.execute("UPDATE messages.message SET available_at = now() WHERE topic = 'video.encode'")
    [done] = drain(database.dsn, [guide.names["encode"]])

    assert (crashed.outcome, "the encoder crashed" in crashed.error) == ("retry", True)

    assert done.output == ["film.1", "film.2"]
    assert parts == ["film.1", "film.2", "film.2"]


def test_what_belongs_to_a_person_is_gone(guide: Guide) -> None:
    statement = "INSERT INTO messages.message (topic, channel, payload) VALUES ('reports.daily', %s, '{}')"
    for channel in ("customer 7", "customer 8"):
        guide.conn.execute(statement, [channel])
    guide.drain("daily_report")
    for channel in ("customer 7", "customer 8"):
        guide.conn.execute(statement, [channel])
    [erase] = [block.text for block in PAGE.blocks if block.kind == "sql runnable"]

    guide.conn.execute(erase)

    left = guide.conn.execute("""
        SELECT channel::text FROM messages.message WHERE topic = 'reports.daily'
        UNION ALL SELECT channel::text FROM messages.message_archive""").fetchall()
    assert left == [("customer 8",), ("customer 8",)]
