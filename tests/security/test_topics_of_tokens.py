"""A token of some topics is shown no name and no content of others.

Every page and route that it may GET is asked, and what they link to.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.api.site import Site
from tests.api.test_rights import OPEN, WAYS
from tests.server.postgres import Database
from tests.sql.queue import Queue

MINE, OTHER = "a.open", "b.zzsecret"
# The contents of rows of the other topic, each with a word of its own.
WORDS = (
    *("topic", "key", "channel", "payload", "header", "output", "error", "reason", "schedule", "worker", "progress"),
    "step",
)


def secret(what: str) -> str:
    return f"zzsecret-{what}" if what != "topic" else OTHER


class Rows:
    """A topic of the token and one of another, bound to each other in every way that there is."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        queue.policy(OTHER, dead_letter=True, max_attempts=1)
        self.workers()
        dead, done, runs, waits = (self.send(key=f"{secret('key')}{n}") for n in range(4))
        for each in queue.claim(OTHER, worker=secret("worker"), limit=3):
            self.run(each, how={dead: "reject", done: "complete"}.get(each.id))
        blocked = self.send(MINE, after=[waits, runs])
        held = self.send(MINE, after=[dead], after_failed="hold")
        after = self.send(after=[blocked], key=secret("key") + "after")
        self.ids = [dead, done, runs, waits, blocked, held, after, *self.fan_out(), *self.own_ends()]
        self.schedules()
        self.actions()
        queue.rows("SELECT * FROM messages.tick('hand')")

    def send(self, topic: str = OTHER, **named: Any) -> int:
        if topic == OTHER:
            named |= {"channel": secret("channel"), "headers": Jsonb({"h": secret("header")})}
        payload = {"x": secret("payload")} if topic == OTHER else {"x": 1}
        return int(self.queue.send(payload, topic=topic, **named).id)

    def run(self, claimed: Any, how: str | None) -> None:
        self.queue.call("save_step", claimed.id, claimed.claim_id, secret("step"), '"1"')
        self.queue.settle("set_progress", [claimed], [Jsonb({"done": 1, "total": 2, "unit": secret("progress")})])
        if how == "complete":
            self.queue.settle("complete", [claimed], [Jsonb(secret("output"))])
        elif how is not None:
            self.queue.settle(how, [claimed], [f"ValueError: {secret('error')}"])

    def workers(self) -> None:
        register = "SELECT messages.register_worker(%s, 'host', 1, '0.1', %s, 4)"
        self.queue.conn.execute(register, [secret("worker"), [OTHER]])
        self.queue.conn.execute(register, ["of-both", [MINE, OTHER]])

    def fan_out(self) -> list[int]:
        """Publish to a topic of the token to which the other one subscribes, and the reverse."""
        insert = "INSERT INTO messages.subscription (topic, subscriber) VALUES (%s, %s)"
        self.queue.conn.execute(insert, ["a.fan", OTHER])
        self.queue.conn.execute(insert, [f"{OTHER}.fan", MINE])
        return [self.send("a.fan"), self.send(f"{OTHER}.fan")]

    def own_ends(self) -> list[int]:
        """Let messages of the topic of the token end, too, and their group of errors be that of the other's."""
        ended = [self.send("a.ends") for _ in range(2)]
        for each in self.queue.claim("a.ends", worker="of-both"):
            self.queue.settle("reject", [each], ["ValueError: plain"])
        return ended

    def schedules(self) -> None:
        self.queue.schedule(secret("schedule"), "0 0 1 1 *", topic=OTHER)
        self.queue.schedule("moved", "0 0 1 1 *", topic=OTHER)
        self.queue.conn.execute("UPDATE messages.schedule SET topic = %s WHERE name = 'moved'", [MINE])
        self.queue.schedule("moved-back", "0 0 1 1 *", topic=MINE)
        self.queue.conn.execute("UPDATE messages.schedule SET topic = %s WHERE name = 'moved-back'", [OTHER])

    def actions(self) -> None:
        """Do what the audit records: about one topic, and about both."""
        queue = self.queue
        queue.policy("a.renamed", max_attempts=2)
        queue.conn.execute("UPDATE messages.topic SET topic = %s WHERE topic = 'a.renamed'", [f"{OTHER}.renamed"])
        queue.policy(f"{OTHER}.x", max_attempts=2)
        queue.conn.execute("UPDATE messages.topic SET topic = 'a.x' WHERE topic = %s", [f"{OTHER}.x"])
        queue.call("pause", OTHER, secret("reason"))
        both = [self.send(MINE), self.send(OTHER, key=secret("key") + "cancelled")]
        queue.call("cancel", both, "of both")
        queue.call("silence", "a.silence", reason="mine", **{"for": "1 hour"})
        queue.call("silence", OTHER, reason=secret("reason"), **{"for": "1 hour"})


@pytest.fixture
def rows(db: psycopg.Connection[Any]) -> Rows:
    return Rows(Queue(db))


@pytest.fixture
def site(database: Database, rows: Rows) -> Iterator[Site]:
    site = Site(database)
    yield site
    site.stop()


def addresses(rows: Rows) -> list[str]:
    """Return each GET of the server with each value of its parts, and with filters unless it is open to all."""
    gets = [way.path for way in WAYS if way.method == "GET" and not way.path.startswith("/runbooks")]
    filtered = [path for path in gets if "{" not in path and f"GET {path}" not in OPEN]
    all_at_once = (
        f"q={OTHER[:5]}&key={secret('key')}0&worker={secret('worker')}&channel={secret('channel')}&target={OTHER}"
    )
    filters = [f"topic={OTHER}", f"topic={MINE}", "state=dead", all_at_once]
    plain = [f"{path}?{each}" for path in filtered for each in filters]
    return plain + [address for path in gets for address in filled(path, rows.ids)]


def filled(path: str, ids: list[int]) -> list[str]:
    """Return the path of a route with each value of each of its parts."""
    part = re.search(r"\{(\w+)(?::path)?\}", path)
    if part is None:
        return [path]
    if "id" in part[1]:
        values = [*map(str, ids)]
    else:
        values = [MINE, OTHER] if "topic" in part[1] else ["moved", secret("schedule"), "of-both", MINE, OTHER]
    return [each for value in values for each in filled(path.replace(part[0], value, 1), ids)]


def links(answer: httpx.Response) -> list[str]:
    """Return what a page loads and links to on this server."""
    if "html" not in answer.headers.get("content-type", ""):
        return []
    found = re.findall(r'(?:href|src|action|data-[\w-]+|hx-get)="(/[^"#]*)"', answer.text)
    return [html.unescape(each) for each in found if not each.startswith(("/static", "/logout", "/runbooks", "//"))]


def shown(answer: httpx.Response, address: str) -> list[str]:
    """Return the secrets in an answer that the request itself did not name."""
    return [word for word in WORDS if secret(word) in answer.text and secret(word) not in address]


def ask(client: httpx.Client, address: str, leaks: dict[str, Any]) -> httpx.Response:
    """Ask for a page, and add what it should not show."""
    with client.stream("GET", address) as answer:
        # A stream of updates does not end; it has what its page shows.
        answer._content = b"" if "event-stream" in answer.headers.get("content-type", "") else answer.read()
    assert answer.status_code < 500, address
    if found := shown(answer, address):
        at = answer.text.find(secret(found[0]))
        leaks[address] = (found, answer.text[max(0, at - 100) : at + 60])
    return answer


@pytest.mark.slow
def test_no_answer_to_an_action_names_a_topic_of_others(site: Site, rows: Rows) -> None:
    leaks: dict[str, Any] = {}
    bodies: list[dict[str, Any]] = [
        *(
            {},
            {"ids": rows.ids},
            {"id": rows.ids[0]},
            {"name": "of-both", "concurrency": 1},
            {"payload": 1, "reason": "x"},
        ),
        {"messages": [{"id": each, "claim_id": 1, "outcome": "complete"} for each in rows.ids]},
    ]
    with site.client(site.token("operator", "worker", "publisher", topics=("a.*",), name="of-a")) as client:
        for way in WAYS:
            if way.method == "GET" or way.path.startswith(("/login", "/logout")):
                continue
            for address in filled(way.path, rows.ids[:3]):
                for body in bodies:
                    answer = client.request(way.method, address, json=body)
                    if found := shown(answer, address):
                        leaks[f"{way.method} {address} {body}"] = (found, answer.text[:300])
                if way.method == "POST" and not address.startswith("/v1/"):
                    answer = client.post(address, data={"name": "of-both", "concurrency": "1"})
                    if found := shown(answer, address):
                        leaks[f"{way.method} {address} as a form"] = (found, answer.text[:300])

    assert leaks == {}


@pytest.mark.slow
# An operator may read what a viewer may.
@pytest.mark.parametrize("role", [pytest.param("viewer", marks=pytest.mark.long), "operator", "publisher", "worker"])
def test_a_token_is_shown_nothing_of_topics_of_others(site: Site, rows: Rows, role: str) -> None:
    leaks: dict[str, Any] = {}
    given = set(addresses(rows))
    with site.client(site.token(role, topics=("a.*",), name="of-a")) as client:
        linked = {link for address in given for link in links(ask(client, address, leaks))}
        for address in linked - given:
            ask(client, address, leaks)

    assert linked - given
    assert leaks == {}


def test_outputs_of_a_worker_that_is_named_like_the_fan_out_break_no_page(site: Site, rows: Rows) -> None:
    sent = [rows.send("a.named") for _ in range(3)]
    claimed = rows.queue.claim("a.named", worker="fan-out")
    rows.queue.settle("complete", claimed, [Jsonb(None), Jsonb([1]), Jsonb({"fanned_out": 1})])

    with site.client(site.token("viewer", topics=("a.*",), name="of-a")) as client:
        found = {client.get(f"{path}/{each}").status_code for path in ("/v1/messages", "/messages") for each in sent}

    assert found == {200}


def test_the_secrets_can_be_found_by_a_token_of_all_topics(site: Site, rows: Rows) -> None:
    missing = set(WORDS)
    with site.client(site.token("operator", name="of-all")) as client:
        for address in addresses(rows):
            if missing and "?" not in address:
                missing -= {word for word in missing if secret(word) in ask(client, address, {}).text}

    assert missing == set()
