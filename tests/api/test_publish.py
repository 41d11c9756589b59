"""Publishing over HTTP.

Messages are stored when the answer arrives, all or none, and once however often a request is sent.
"""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from pgrouse.web.http import large_body
from pgrouse.web.v1.messages import publish
from tests.api.site import Site, code
from tests.server.deadline import eventually
from tests.server.postgres import Postgres
from tests.sql.queue import Queue


def send(
    http: httpx.Client, topic: str, with_headers: Any = None, payload: Any = None, **fields: Any
) -> httpx.Response:
    """Publish one message, with these headers of the request."""
    return http.post("/v1/messages", json={"topic": topic, "payload": payload, **fields}, headers=with_headers)


def send_all(http: httpx.Client, *messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Publish messages in one request; return its results."""
    found: list[dict[str, Any]] = http.post("/v1/messages/batch", json={"messages": messages}).json()["results"]
    return found


def test_a_message_has_every_field_of_its_request(http: httpx.Client, queue: Queue) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    fields = {"payload": {"id": 7}, "headers": {"a": 1}, "key": "k", "channel": "c", "priority": 2, "max_attempts": 3}

    answer = send(http, "p.all", **fields, available_at=later.isoformat(), ttl="1h")

    assert (answer.status_code, answer.json()["outcome"]) == (201, "inserted")
    stored = queue.message(answer.json()["id"])
    assert {name: getattr(stored, name) for name in fields} == fields
    assert stored.available_at == later
    assert stored.expires_at == later + timedelta(hours=1)


OWN = {"timeout": "90s", "backoff": {"kind": "constant", "base": "7s"}, "retention": "90d"}


def test_a_message_has_its_own_timeout_backoff_and_retention_alone_and_in_a_batch(
    http: httpx.Client, queue: Queue
) -> None:
    plain = {"topic": "p.own", "payload": 1}
    alone = send(http, **plain, **OWN).json()["id"]
    own, without = send_all(http, {**plain, **OWN}, plain)
    (keyed,) = send_all(http, {**plain, **OWN, "key": "k", "on_conflict": "replace"})
    kind = send(http, **plain, backoff="none").json()["id"]

    for each in (alone, own["id"], keyed["id"]):
        stored = queue.message(each)
        assert (stored.timeout, stored.retention) == (timedelta(seconds=90), timedelta(days=90))
        assert stored.backoff == {"kind": "constant", "base": "7s"}
        shown = http.get(f"/v1/messages/{each}").json()
        assert (shown["timeout"], shown["retention"], shown["backoff"]) == (90.0, 90 * 86400.0, stored.backoff)
    assert (queue.message(without["id"]).timeout, queue.message(without["id"]).retention) == (None, None)
    assert queue.message(kind).backoff == {"kind": "none"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("timeout", "0s"), ("timeout", "31d"), ("retention", 60), ("backoff", "cubic"), ("backoff", {"base": "1s"})),
        *(("backoff", {"kind": "constant", "base": "-1s"}), ("backoff", {"kind": "constant", "bas": "1s"})),
    ],
)
def test_an_own_setting_that_cannot_be_is_refused_alone_and_in_a_batch(
    http: httpx.Client, queue: Queue, name: str, value: Any
) -> None:
    message = {"topic": "p.refused", "payload": 1, name: value}

    alone = http.post("/v1/messages", json=message)
    batch = http.post("/v1/messages/batch", json={"messages": [message]})

    assert (alone.status_code, batch.status_code) == (422, 422)
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'p.refused'") == 0
    assert name in alone.text
    assert name in batch.text


@pytest.mark.parametrize("payload", [None, 0, "", [], {}, "ä\u2028", 12345678901234567890, {"a": {"b": [None]}}])
def test_any_json_value_is_a_payload_alone_and_in_a_batch(http: httpx.Client, queue: Queue, payload: Any) -> None:
    alone = send(http, "p.any", payload=payload).json()["id"]
    (in_batch,) = send_all(http, {"topic": "p.any", "payload": payload})

    for each in (alone, in_batch["id"]):
        assert queue.value("SELECT payload FROM messages.message WHERE id = %s", [each]) == payload


def test_a_further_publish_with_debounce_moves_the_waiting_message(http: httpx.Client, queue: Queue) -> None:
    def fields(payload: int, wait: str) -> dict[str, Any]:
        return {"topic": "p.wait", "payload": payload, "key": "k", "debounce": wait, "max_delay": "5h"}

    alone = http.post("/v1/messages", json=fields(1, "1h")).json()
    batch = send_all(http, fields(2, "2h"), fields(3, "3h"))
    parameters = {"key": "k", "debounce": "4h", "max_delay": "5h"}
    whole = http.post("/v1/topics/p.wait/messages", params=parameters, json=4).json()

    assert alone["outcome"] == "inserted"
    assert [*batch, whole] == [{"id": alone["id"], "outcome": "replaced"}] * 3
    stored = queue.message(alone["id"])
    assert (stored.payload, round((stored.available_at - stored.created_at) / timedelta(hours=1))) == (4, 4)


def test_a_key_that_is_throttled_is_ignored(http: httpx.Client, queue: Queue) -> None:
    fields = {"topic": "p.throttle", "payload": 1, "key": "k", "throttle": "1h"}
    alone = http.post("/v1/messages", json=fields).json()
    queue.claim_one("p.throttle")
    again = http.post("/v1/messages", json=fields).json()
    batch = send_all(http, fields)
    whole = http.post("/v1/topics/p.throttle/messages", params={"key": "k", "throttle": "1h"}, json=4).json()

    assert alone["outcome"] == "inserted"
    assert [again, *batch, whole] == [{"id": alone["id"], "outcome": "ignored"}] * 3


def test_what_debounce_cannot_be_combined_with_is_refused(http: httpx.Client, queue: Queue) -> None:
    answer = send(http, "p.bad", debounce="1h")

    assert (answer.status_code, code(answer)) == (422, "invalid_message")
    assert queue.rows("SELECT FROM messages.message WHERE topic = 'p.bad'") == []


def test_bytes_are_published_as_a_body(http: httpx.Client, queue: Queue) -> None:
    body = bytes(range(256))
    text = base64.b64encode(body).decode()

    alone = http.post("/v1/messages", json={"topic": "p.bytes", "body": text}).json()["id"]
    (in_batch,) = send_all(http, {"topic": "p.bytes", "body": text})
    whole = http.post("/v1/topics/p.bytes/messages", content=body, headers={"Content-Type": "image/png"}).json()["id"]

    for each in (alone, in_batch["id"], whole):
        assert bytes(queue.message(each).body) == body


def test_a_large_payload_is_published_unchanged(http: httpx.Client, queue: Queue) -> None:
    payload, body = ["ä" * 9] * 40_000, bytes(400_000)
    raw = {"Content-Type": "application/octet-stream"}

    alone = send(http, "p.large", payload=payload, priority=1).json()["id"]
    (in_batch,) = send_all(http, {"topic": "p.large", "payload": payload})
    whole = http.post("/v1/topics/p.large/messages", json=payload).json()["id"]
    bytes_ = http.post("/v1/topics/p.large/messages?priority=1", content=body, headers=raw).json()["id"]

    for each in (alone, in_batch["id"], whole):
        assert queue.message(each).payload == payload
    assert (bytes(queue.message(bytes_).body), queue.message(bytes_).priority) == (body, 1)


def test_a_large_payload_is_validated_against_its_schema(http: httpx.Client, queue: Queue) -> None:
    queue.policy("p.typed", payload_schema={"type": "array"})
    try:
        large = "x" * 400_000
        wrong, right = (send(http, "p.typed", payload=payload) for payload in ({"a": large}, [large]))
    finally:
        queue.row("DELETE FROM messages.topic WHERE topic = 'p.typed' RETURNING 1")

    assert (wrong.status_code, code(wrong), right.status_code) == (422, "invalid_payload", 201)


def test_other_requests_are_answered_while_large_ones_are_read(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, read, reading = threading.Event(), publish._read, []

    def slow(request: Any, kind: Any, content: bytes) -> Any:
        if len(content) > large_body.LARGE_BYTES:
            reading.append(content)
            may_go_on.wait(120)
        return read(request, kind, content)

    monkeypatch.setattr(publish, "_read", slow)
    large = {"topic": "p.slow", "payload": "x" * large_body.LARGE_BYTES}
    with ThreadPoolExecutor(large_body.MAX_AT_ONCE) as pool:
        sent = [pool.submit(http.post, "/v1/messages", json=large) for _ in range(large_body.MAX_AT_ONCE)]
        try:
            eventually(lambda: len(reading) == large_body.MAX_AT_ONCE)
            alive = http.get("/livez", timeout=30)
            small = http.post("/v1/messages", json={"topic": "p.slow", "payload": None}, timeout=30)
            monkeypatch.setattr(large_body, "WAIT_S", 0.1)
            one_more = http.post("/v1/messages", json=large, timeout=30)
        finally:
            may_go_on.set()

    assert (alive.status_code, small.status_code) == (200, 201)
    assert (one_more.status_code, code(one_more), one_more.headers["retry-after"]) == (503, "too_many_large", "2")
    assert [each.result().status_code for each in sent] == [201, 201]


def test_a_batch_is_answered_in_its_order(http: httpx.Client, queue: Queue) -> None:
    sent = [{"topic": f"p.order{n % 3}", "payload": n, "delay": n % 2} for n in range(50)]

    assert [queue.message(each["id"]).payload for each in send_all(http, *sent)] == list(range(50))


def test_a_batch_is_published_as_a_whole_or_not_at_all(http: httpx.Client, queue: Queue) -> None:
    send(http, "p.whole", key="taken")

    one = {"topic": "p.whole", "payload": None}
    answer = http.post("/v1/messages/batch", json={"messages": [one, {**one, "key": "taken"}]})

    assert (answer.status_code, code(answer)) == (409, "already_there")
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'p.whole'") == 1


def test_concurrent_requests_are_published_together_and_each_gets_its_own_id(http: httpx.Client, queue: Queue) -> None:
    with ThreadPoolExecutor(20) as pool:
        sent = list(pool.map(lambda n: send(http, "p.many", payload=n), range(200)))

    stored = queue.rows("SELECT id, payload FROM messages.message WHERE topic = 'p.many'")
    assert {answer.json()["id"]: n for n, answer in enumerate(sent)} == {row.id: row.payload for row in stored}


def test_an_invalid_message_fails_no_other_request(http: httpx.Client, queue: Queue) -> None:
    queue.policy("p.small", max_payload_bytes=10)
    try:

        def send_one(n: int) -> int:
            topic, payload = ("p.small", "x" * 100) if n % 2 else ("p.large", n)
            return send(http, topic, payload=payload).status_code

        with ThreadPoolExecutor(10) as pool:
            codes = list(pool.map(send_one, range(60)))
    finally:
        queue.row("DELETE FROM messages.topic WHERE topic = 'p.small' RETURNING 1")

    assert codes == [413 if n % 2 else 201 for n in range(60)]


def test_a_refusal_by_a_policy_names_the_policy(server: Postgres) -> None:
    with server.new_database(template=server.migrated) as database:
        site, queue = Site(database), Queue(database.connect())
        try:
            queue.policy("full", max_depth=1)
            queue.policy("drops", max_depth=1, on_full="drop")
            queue.policy("slow", publish_rate=0.001, burst=1)
            queue.policy("typed", payload_schema={"type": "object"})
            with site.client(site.token("publisher")) as client:
                for topic in ("full", "drops", "slow"):
                    assert send(client, topic).status_code == 201
                full, dropped, slow, typed = (send(client, topic) for topic in ("full", "drops", "slow", "typed"))
                batch = send_all(client, {"topic": "drops", "payload": None}, {"topic": "free", "payload": None})
        finally:
            site.stop()

    assert (full.status_code, code(full), full.headers["Retry-After"]) == (429, "topic_full", "5")
    assert dropped.json() == {"id": None, "outcome": "dropped"}
    assert (slow.status_code, code(slow), "Retry-After" in slow.headers) == (429, "publish_rate_exceeded", True)
    assert (typed.status_code, code(typed)) == (422, "invalid_payload")
    assert [each["outcome"] for each in batch] == ["dropped", "inserted"]


def test_a_request_carries_its_trace_into_the_message(http: httpx.Client, queue: Queue) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    sent, broken = (send(http, "p.trace", with_headers={"traceparent": each}).json() for each in (trace, "x"))

    assert queue.message(sent["id"]).headers == {"traceparent": trace}
    assert queue.message(broken["id"]).headers is None


def test_a_repeated_request_with_its_key_gets_the_first_answer(http: httpx.Client, queue: Queue) -> None:
    key = {"Idempotency-Key": "order-7"}

    first, again, other = (send(http, "p.once", payload=n, with_headers=key) for n in (1, 1, 2))

    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert first.headers["location"] == again.headers["location"] == f"/v1/messages/{first.json()['id']}"
    assert (other.status_code, code(other)) == (422, "idempotency_key_reused")
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'p.once'") == 1


def test_a_failed_request_may_be_repeated_with_its_key(http: httpx.Client) -> None:
    key = {"Idempotency-Key": "later"}
    blocker = send(http, "p.again", key="k").json()["id"]
    refused = send(http, "p.again", key="k", with_headers=key)
    http.post("/v1/messages/cancel", json={"ids": [blocker]})

    assert refused.status_code == 409
    assert send(http, "p.again", key="k", with_headers=key).status_code == 201


def test_many_concurrent_retries_publish_once(http: httpx.Client, queue: Queue) -> None:
    def send_payload(_: int) -> Any:
        return http.post("/v1/topics/p.storm/messages", json={"id": 7}, headers={"Idempotency-Key": "storm"}).json()

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(send_payload, range(32)))

    assert len({each["id"] for each in answers}) == 1
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'p.storm'") == 1


def test_a_server_killed_during_a_batch_has_published_nothing_or_all(
    site: Site, http: httpx.Client, queue: Queue
) -> None:
    """A published but unanswered batch is answered to the retry; an uncommitted one is published by the retry."""
    key = {"Idempotency-Key": "crash"}
    holder = site.database.connect()
    holder.execute("BEGIN")
    holder.execute("SELECT * FROM messages.begin_request('root', 'crash', '\\x00')")
    found: list[int] = []
    waiting = threading.Thread(target=lambda: found.append(send(http, "p.crash", with_headers=key).status_code))
    waiting.start()
    blocked = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    (victim,) = eventually(lambda: queue.rows(blocked))

    queue.row("SELECT pg_terminate_backend(%s)", [victim.pid])
    waiting.join(60)
    holder.execute("ROLLBACK")
    holder.close()

    assert found == [503]
    assert send(http, "p.crash", with_headers=key).status_code == 201
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'p.crash'") == 1


@pytest.mark.parametrize(
    ("body", "where"),
    [
        ({"topic": "a b"}, "body.topic"),
        ({"topic": "t", "priority": 10}, "body.priority"),
        ({"topic": "t", "delay": "soon"}, "body.delay"),
        ({"topic": "t", "key": "\x00"}, "body.key"),
        ({"topic": "t", "body": "%"}, "body.body"),
        ({"topic": "t", "colour": "red"}, "body.colour"),
        ({"topic": "t", "available_at": "2027-01-01T00:00:00"}, "body.available_at"),
        ({}, "body.topic"),
        ([], "body"),
    ],
)
def test_an_error_names_its_location(http: httpx.Client, body: Any, where: str) -> None:
    answer = http.post("/v1/messages", json=body)

    assert (answer.status_code, code(answer)) == (422, "invalid_request")
    assert answer.json()["errors"][0]["location"] == where


@pytest.mark.parametrize(
    "text",
    [
        '{"topic":"t","payload":{"a":1,"a":2}}',
        '{"topic":"t","payload":1e400}',
        '{"topic":"t","payload":"\\u0000"}',
        '{"topic":"t","payload":"\\ud800"}',
        '{"topic":"t","payload":NaN}',
        '{"topic":"t","payload":' + "[" * 500 + "]" * 500 + "}",
        "{",
    ],
)
def test_json_that_could_not_be_stored_unchanged_is_refused(http: httpx.Client, text: str) -> None:
    for path in ("/v1/messages", "/v1/topics/t/messages"):
        assert http.post(path, content=text.encode()).status_code == 422


def test_a_message_can_depend_on_others_alone_and_in_a_batch(http: httpx.Client, queue: Queue) -> None:
    first = send(http, "p.first").json()["id"]
    message = {"topic": "p.after", "payload": None, "after": [first], "after_failed": "cancel"}

    alone = http.post("/v1/messages", json=message).json()["id"]
    in_batch, free = send_all(http, message, {"topic": "p.none", "payload": None, "after": []})

    waiting = queue.rows("SELECT id FROM messages.workflow(%s)", [first])
    assert [row.id for row in waiting] == [alone, in_batch["id"]]
    assert queue.message(free["id"]).available_at.year < 9000


def test_a_missing_dependency_is_refused(http: httpx.Client) -> None:
    answer = send(http, "p.after", after=[2**62])

    assert (answer.status_code, answer.json()["code"]) == (422, "unknown_predecessor")


@pytest.mark.parametrize("fields", [{}, {"key": "k"}, {"headers": {"a": 1}}])
def test_a_message_without_content_is_refused(http: httpx.Client, fields: dict[str, Any]) -> None:
    empty = {"topic": "p.nothing", **fields}
    one = http.post("/v1/messages", json=empty)
    many = http.post("/v1/messages/batch", json={"messages": [{"topic": "p.nothing", "payload": 1}, empty]})

    assert [(answer.status_code, code(answer)) for answer in (one, many)] == [(422, "invalid_request")] * 2
    assert "there is no payload" in one.json()["detail"]


@pytest.mark.parametrize("how", [{}, {"priority": 1}, {"key": "p.located"}])
def test_the_answer_has_the_location_of_the_message(http: httpx.Client, how: dict[str, Any]) -> None:
    answer = send(http, "p.located", **how)

    assert answer.headers["location"] == f"/v1/messages/{answer.json()['id']}"
    assert http.get(answer.headers["location"]).json()["id"] == answer.json()["id"]


def test_requests_with_the_same_keys_in_opposite_orders_do_not_deadlock(http: httpx.Client) -> None:
    def batch(numbers: Iterable[int]) -> httpx.Response:
        sent = [{"topic": "opposite", "key": f"k{n:03}", "payload": n, "on_conflict": "replace"} for n in numbers]
        return http.post("/v1/messages/batch", json={"messages": sent})

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(batch, [range(100), range(99, -1, -1)] * 8))

    assert {answer.status_code for answer in answers} == {201}
    first, second = ([each["id"] for each in answer.json()["results"]] for answer in answers[:2])
    assert first == second[::-1]
