"""Workers in any language: claim, heartbeat, settle; a worker that lost the lock is informed and changes nothing."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from psycopg_pool import TooManyRequests
from structlog.testing import capture_logs

from pgrouse.client.call import Call, values
from pgrouse.logging import events
from pgrouse.values import jsonb
from pgrouse.web.access import database_pool
from pgrouse.web.background import http_workers, long_poll
from pgrouse.web.v1 import work
from tests.api.site import Site, code
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue


def claim(http: httpx.Client, topic: str, **more: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = http.post("/v1/claim", json={"topics": [topic], **more}).json()["messages"]
    return found


def test_a_claimed_message_has_all_that_its_worker_needs(http: httpx.Client, queue: Queue) -> None:
    published = queue.publish("w.all", payload={"id": 7}, headers={"a": 1}, key="k", channel="c")

    (message,) = claim(http, "w.all", worker="rust-1", lock_duration="5m")

    assert message["id"] == published
    assert (message["payload"], message["headers"], message["attempt"]) == ({"id": 7}, {"a": 1}, 1)
    assert message["lock_duration_s"] == 300
    assert queue.message(published).locked_by == "http:root/rust-1"
    assert claim(http, "w.all") == []


@pytest.mark.parametrize(
    ("ended", "became"),
    [
        ({"outcome": "complete", "output": {"ok": True}}, "success"),
        ({"outcome": "reject", "error": "bad"}, "rejected"),
        ({"outcome": "fail", "error": "bad"}, "failed"),
        ({"outcome": "expire", "error": "it took too long"}, "lock_expired"),
    ],
)
def test_an_attempt_ends_as_the_worker_requests(http: httpx.Client, queue: Queue, ended: Any, became: str) -> None:
    topic = f"w.end.{became}"
    published = queue.publish(topic)
    (message,) = claim(http, topic)

    answer = http.post(f"/v1/messages/{published}/settle", json={"claim_id": message["claim_id"], **ended})

    assert answer.json() == {"settled": [published], "lost": []}
    archived = queue.archived(published)
    assert (archived.result, archived.output, archived.error) == (became, ended.get("output"), ended.get("error"))


def test_a_retried_message_has_the_state_it_was_given(http: httpx.Client, queue: Queue) -> None:
    queue.policy("w.again", max_attempts=5)
    published = queue.publish("w.again")
    for outcome in ("retry", "defer"):
        (message,) = claim(http, "w.again")
        ended = {"claim_id": message["claim_id"], "outcome": outcome, "delay": 0, "state": {"page": outcome}}
        assert http.post(f"/v1/messages/{published}/settle", json=ended).status_code == 200

    (message,) = claim(http, "w.again")

    assert message["state"] == {"page": "defer"}
    assert message["attempt"] == 2, "a deferral used none up"
    assert message["runs"] == 3, "although it had begun"


def test_a_deferral_may_pause_the_topic_until_the_message_comes_back(http: httpx.Client, queue: Queue) -> None:
    first, _ = queue.publish_many(2, "w.pause")
    (message,) = claim(http, "w.pause")
    ended = {"claim_id": message["claim_id"], "outcome": "defer", "pause": "topic", "reason": "429"}

    refused = http.post(f"/v1/messages/{first}/settle", json=ended)
    assert (refused.status_code, "without delay or until" in refused.text) == (422, True)
    assert http.post(f"/v1/messages/{first}/settle", json=ended | {"delay": 60}).json()["settled"] == [first]

    assert claim(http, "w.pause") == []
    assert queue.value("SELECT paused_reason FROM messages.topic WHERE topic = 'w.pause'") == "429"


@pytest.mark.parametrize(("ran", "runs"), [({}, 1), ({"ran": False}, 1), ({"ran": True}, 2)])
def test_a_released_message_keeps_its_run_only_if_it_had_begun(
    http: httpx.Client, queue: Queue, ran: dict[str, bool], runs: int
) -> None:
    topic = f"w.ran.{len(ran)}.{runs}"
    published = queue.publish(topic)
    (message,) = claim(http, topic)

    released = {"claim_id": message["claim_id"], "outcome": "release", **ran}
    assert http.post(f"/v1/messages/{published}/settle", json=released).json() == {"settled": [published], "lost": []}

    (again,) = claim(http, topic)
    assert (again["attempt"], again["runs"]) == (1, runs)


def test_many_attempts_are_settled_in_one_request_with_different_outcomes(http: httpx.Client, queue: Queue) -> None:
    queue.publish_many(7, "w.batch")
    messages = claim(http, "w.batch", limit=10)
    ways = ["complete", "retry", "reject", "fail", "defer", "release", "expire"]
    ended = [{"id": m["id"], "claim_id": m["claim_id"], "outcome": way} for m, way in zip(messages, ways, strict=True)]
    ended.append({"id": 10**15, "claim_id": 1, "outcome": "complete"})

    answer = http.post("/v1/settle", json={"messages": ended}).json()

    assert answer == {"settled": [m["id"] for m in messages], "lost": [10**15]}
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'w.batch' AND claim_id IS NULL") == 2
    assert queue.value("SELECT count(*) FROM messages.message_archive WHERE topic = 'w.batch'") == 5


def test_a_settle_after_a_lost_lock_changes_nothing_and_is_reported(http: httpx.Client, queue: Queue) -> None:
    published = queue.publish("w.lost")
    (first,) = claim(http, "w.lost")
    queue.call("release", [published], [first["claim_id"]])
    (second,) = claim(http, "w.lost")

    settled = http.post(f"/v1/messages/{published}/settle", json={"claim_id": first["claim_id"], "outcome": "fail"})
    beaten = http.post(f"/v1/messages/{published}/heartbeat", json={"claim_id": first["claim_id"]})

    assert (settled.status_code, code(settled)) == (409, "lock_lost")
    assert (beaten.status_code, code(beaten), beaten.json()["cancelled"]) == (409, "lock_lost", False)
    assert queue.message(published).claim_id == second["claim_id"]


def test_a_repeated_settle_is_not_lost(http: httpx.Client, queue: Queue) -> None:
    published = queue.publish("w.twice")
    (message,) = claim(http, "w.twice")
    ended = {"claim_id": message["claim_id"], "outcome": "complete"}

    answers = [http.post(f"/v1/messages/{published}/settle", json=ended).status_code for _ in range(2)]

    assert answers == [200, 200]


def test_a_heartbeat_extends_the_lock_and_records_progress(http: httpx.Client, queue: Queue) -> None:
    published = queue.publish("w.beat")
    (message,) = claim(http, "w.beat")
    before = queue.message(published).lock_expires_at

    beat = {"claim_id": message["claim_id"], "lock_duration": "1h", "progress": {"done": 3, "total": 9}}
    assert http.post(f"/v1/messages/{published}/heartbeat", json=beat).json() == {"lost": [], "cancelled": []}

    assert (queue.message(published).lock_expires_at - before).total_seconds() > 3000
    assert queue.message(published).progress == {"done": 3, "total": 9}


def test_a_heartbeat_reports_cancellations(http: httpx.Client, queue: Queue) -> None:
    one, other = queue.publish_many(2, "w.cancel")
    held = [{"id": m["id"], "claim_id": m["claim_id"]} for m in claim(http, "w.cancel", limit=2)]
    queue.call("cancel", [one])

    assert http.post("/v1/heartbeat", json={"messages": held}).json() == {"lost": [one], "cancelled": [one]}
    assert queue.message(other).claim_id


def test_a_waiting_claim_gets_a_message_published_meanwhile(site: Site, http: httpx.Client, queue: Queue) -> None:
    found: list[list[dict[str, Any]]] = []
    waiting = threading.Thread(target=lambda: found.append(claim(http, "w.wait", wait=25)))
    waiting.start()
    eventually(lambda: queue.value("SELECT count(*) FROM messages.sleeper WHERE worker LIKE 'web:%%'"))

    published = queue.publish("w.wait")
    waiting.join(60)

    assert [message["id"] for message in found[0]] == [published]
    eventually(lambda: not queue.value("SELECT count(*) FROM messages.sleeper WHERE worker LIKE 'web:%%'"))


def test_all_waiting_claims_share_one_connection(site: Site, http: httpx.Client, queue: Queue) -> None:
    def count() -> int:
        query = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'pgrouse%%'"
        )
        return int(queue.value(query))

    threads = [threading.Thread(target=lambda n=n: claim(http, f"w.crowd{n}", wait=25)) for n in range(20)]
    for each in threads:
        each.start()
    eventually(lambda: queue.value("SELECT coalesce(max(cardinality(topics)), 0) = 20 FROM messages.sleeper"))

    assert count() <= site.app.state.settings.web.pool_size + 1
    for n in range(20):
        queue.publish(f"w.crowd{n}")
    for each in threads:
        each.join(60)
        assert not each.is_alive()


@pytest.fixture
def crowded(site_database: Database, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """A server where few requests may wait for a connection."""
    monkeypatch.setattr(database_pool, "MAX_WAITING", 10)
    # Waiting requests should not be refused because the machine pauses.
    monkeypatch.setattr(database_pool, "WAIT_S", 60.0)
    site = Site(site_database, pool_size=2, statement_timeout="60s")
    yield site
    site.stop()


def test_each_of_many_waiting_claims_gets_one_message_and_none_is_refused(
    crowded: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims, claimed = [], work._claim

    async def counted(*given: Any) -> list[dict[str, Any]]:
        claims.append(given)
        if len(claims) == 1:
            raise TooManyRequests("the pool has no connection to spare")
        return await claimed(*given)

    def is_quiet() -> bool:
        long_poll = crowded.app.state.long_poll
        return not long_poll._claim_slots.locked() and not any(each.woken.is_set() for each in list(long_poll._waiters))

    async def wait_all(client: httpx.AsyncClient) -> list[httpx.Response]:
        asked = {"topics": ["w.storm"], "wait": 25}
        waiting = [asyncio.create_task(client.post("/v1/claim", json=asked)) for _ in range(60)]
        waiters = crowded.app.state.long_poll._waiters
        await asyncio.to_thread(eventually, lambda: len(waiters) == len(waiting))
        monkeypatch.setattr(work, "_claim", counted)
        await asyncio.to_thread(queue.publish, "w.storm")
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(eventually, is_quiet)
        assert len(claims) <= 10, "the others did not even try"
        await asyncio.to_thread(queue.publish_many, 59, "w.storm")
        return await asyncio.gather(*waiting)

    async def run() -> list[httpx.Response]:
        headers = {"Authorization": f"Bearer {crowded.token('worker')}"}
        limits = httpx.Limits(max_connections=100)
        async with httpx.AsyncClient(base_url=crowded.url, headers=headers, timeout=90, limits=limits) as client:
            return await wait_all(client)

    answers = asyncio.run(run())

    assert {answer.status_code for answer in answers} == {200}
    assert len({message["id"] for answer in answers for message in answer.json()["messages"]}) == 60


def test_one_token_cannot_take_the_waiting_requests_of_others(
    site_database: Database, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "MAX_WAITING", 8)
    monkeypatch.setattr(long_poll, "MAX_WAITING_OF_CALLER", 5)
    site = Site(site_database)
    with ExitStack() as ends:
        threads = ends.enter_context(ThreadPoolExecutor(5))
        greedy, modest = (ends.enter_context(site.client(site.token("worker"))) for _ in range(2))
        # Ends the waiting claims, so that the threads end.
        ends.callback(site.stop)

        def ask(client: httpx.Client, wait: float) -> int:
            return client.post("/v1/claim", json={"topics": ["w.share"], "wait": wait}).status_code

        waiting = [threads.submit(ask, greedy, 25) for _ in range(5)]
        eventually(lambda: len(site.app.state.long_poll._waiters) == 5)
        answers = [ask(greedy, 0.1), ask(modest, 0.1), ask(greedy, 0)]
        queue.publish("w.share")
        wait_for_futures(waiting, return_when=FIRST_COMPLETED)

        assert answers == [429, 200, 200]
        eventually(lambda: ask(greedy, 0.1) == 200)


def test_the_number_of_awaited_topics_is_limited_per_token_and_in_total(
    site_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_poll, "MAX_TOPICS", 250)
    crowded = Site(site_database)
    topics = [f"w.bound{n}" for n in range(400)]
    with ExitStack() as ends:
        threads = ends.enter_context(ThreadPoolExecutor(2))
        one, other = (ends.enter_context(crowded.client(crowded.token("worker"))) for _ in range(2))
        # Ends the waiting claims, so that the threads end.
        ends.callback(crowded.stop)

        def ask(client: httpx.Client, first: int, last: int, wait: float = 0.1) -> httpx.Response:
            return client.post("/v1/claim", json={"topics": topics[first:last], "wait": wait})

        for first in (0, 100):
            threads.submit(ask, one, first, first + 100, 25)
        eventually(lambda: len(crowded.app.state.long_poll._waited_topics.topics()) == 200)
        its_own, too_many, of_others, few = (
            ask(one, 50, 150),
            ask(one, 199, 201),
            ask(other, 200, 251),
            ask(other, 200, 250),
        )

    assert [answer.status_code for answer in (its_own, too_many, of_others, few)] == [200, 429, 503, 200]
    for refused in (too_many, of_others):
        assert (code(refused), refused.headers["retry-after"]) == ("too_many_waiting", "1")
    assert "one token" in too_many.json()["detail"]


@pytest.mark.long
def test_a_broken_listener_is_logged_once(http: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[object] = []
    broken = Call(b"SELECT 1 / 0", [], values)
    monkeypatch.setattr(long_poll, "ready_topics", lambda topics: checks.append(topics) or broken)
    monkeypatch.setattr(long_poll, "CHECK_S", 0.05)

    with capture_logs() as logs:
        # A busy machine checks later.
        for wait in (3, 10, 25):
            assert claim(http, "w.blind", wait=wait) == []
            if len(checks) >= 2:
                break

    found = [(log["loop"], log["failures"], log["reason"]) for log in logs if log["event"] == events.LOOP_FAILED]
    assert found == [("long poll", 1, "division by zero")]


def test_a_waiting_claim_gets_a_delayed_message_when_it_is_due(http: httpx.Client, queue: Queue) -> None:
    queue.publish("w.due", wait="0.3 s")

    assert len(claim(http, "w.due", wait=25)) == 1


def test_a_claim_that_waits_while_the_listener_ends_is_served(
    http: httpx.Client, site: Site, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Call(b"SELECT pg_catalog.pg_advisory_xact_lock(4711)", [], values)
    monkeypatch.setattr(long_poll, "unregister_worker", lambda name: held)
    ending = "SELECT FROM pg_locks AS l WHERE l.locktype = 'advisory' AND l.objid = 4711 AND NOT l.granted"
    queue.conn.execute("SELECT pg_advisory_lock(4711)")
    assert claim(http, "w.late", wait=0.1) == [], "it waits in vain"
    eventually(lambda: queue.conn.execute(ending).rowcount)

    with ThreadPoolExecutor(1) as thread:
        late = thread.submit(claim, http, "w.late", wait=25)
        eventually(lambda: site.app.state.long_poll._waiters)
        queue.conn.execute("SELECT pg_advisory_unlock(4711)")
        queue.publish("w.late")

    assert len(late.result()) == 1


def test_messages_claimed_for_a_closed_connection_are_released(site: Site, http: httpx.Client, queue: Queue) -> None:
    with pytest.raises(httpx.ReadTimeout):
        http.post("/v1/claim", json={"topics": ["w.gone"], "wait": 25}, timeout=httpx.Timeout(60, read=0.5))

    published = queue.publish("w.gone")

    eventually(lambda: queue.message(published).claim_id is None and queue.message(published).attempts == 0)
    assert [message["id"] for message in claim(http, "w.gone", wait=25)] == [published]


@pytest.mark.parametrize(
    "wrong", [{"topics": []}, {"limit": 1001}, {"wait": 31}, {"lock_duration": "8d"}, {"lock_duration": 0}]
)
def test_limits_of_a_claim_are_checked(http: httpx.Client, wrong: dict[str, Any]) -> None:
    assert http.post("/v1/claim", json={"topics": ["t"], **wrong}).status_code == 422


def test_other_requests_are_answered_while_a_large_output_is_read_and_written(
    http: httpx.Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, encode, writing = threading.Event(), jsonb.encode, threading.Event()

    def slow(value: Any, where: str = "payload", **more: Any) -> str:
        if where == "output":
            writing.set()
            may_go_on.wait(120)
        return encode(value, where, **more)

    published = queue.publish("w.large")
    (message,) = claim(http, "w.large")
    output = {"rows": ["x" * 1000] * 1000}
    monkeypatch.setattr(jsonb, "encode", slow)
    ended = {"claim_id": message["claim_id"], "outcome": "complete", "output": output}
    with ThreadPoolExecutor(1) as pool:
        settled = pool.submit(http.post, f"/v1/messages/{published}/settle", json=ended)
        try:
            assert writing.wait(60)
            alive = http.get("/livez", timeout=30)
            other = http.post("/v1/claim", json={"topics": ["w.none"]}, timeout=30)
        finally:
            may_go_on.set()

    assert (alive.status_code, other.status_code, settled.result().status_code) == (200, 200, 200)
    assert queue.archived(published).output == output


LARGE = "x" * 400_000


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"claim_id": 1,', "is not JSON"),
        (b'{"claim_id": 1, "outcome": "release\xff"}', "invalid UTF-8 at byte 35"),
        (b'{"claim_id": 1, "outcome": "complete", "output": {"a": 1, "a": 2}}', "the key 'a' occurs twice"),
        (b'{"claim_id": 1, "outcome": "complete", "output": NaN}', "NaN is not JSON"),
        ({"outcome": "complete", "output": [LARGE, "\x00"]}, "output[1] contains a NUL character"),
        ({"outcome": "retry", "state": {"a": LARGE, "b": "\ud800"}}, "state['b'] contains half of a surrogate pair"),
        ({"outcome": "complete", "output": LARGE, "delay": 1}, "delay is not for complete"),
        ({"outcome": "complete", **{f"k{n}": LARGE[:4000] for n in range(101)}}, "has 103 members"),
    ],
    ids=["cut", "bytes", "twice", "nan", "large nul", "large surrogate", "large misplaced", "large members"],
)
def test_a_body_that_could_not_be_stored_is_refused_also_if_it_is_large(
    http: httpx.Client, content: bytes | dict[str, Any], expected: str
) -> None:
    sent = content if isinstance(content, bytes) else json.dumps({"claim_id": 1, **content})

    answer = http.post("/v1/messages/1/settle", content=sent, headers={"Content-Type": "application/json"})

    assert (answer.status_code, code(answer)) == (422, "invalid_request")
    assert expected in answer.json()["detail"]


def of_registry(http: httpx.Client, name: str) -> dict[str, Any] | None:
    workers = http.get("/v1/workers").json()["workers"]
    return next((each for each in workers if each["name"] == name), None)


def test_a_named_worker_is_listed_and_its_heartbeat_is_updated(
    http: httpx.Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_workers, "RECORD_EVERY_S", 3600)
    claim(http, "w.named", worker="go-1", limit=7)
    claim(http, "w.other", worker="go-1")
    worker = of_registry(http, "http:root/go-1")
    claim(http, "w.named", worker="go-1")
    claim(http, "w.named")

    assert worker is not None
    assert of_registry(http, "http:root/go-1") == worker, "it was dated a moment ago"
    assert (worker["kind"], worker["state"], worker["topics"]) == ("http", "working", ["w.named", "w.other"])
    assert queue.call("is_handled", "w.other") is True
    monkeypatch.setattr(http_workers, "RECORD_EVERY_S", 0)
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '1 hour'")
    claim(http, "w.named", worker="go-1")
    again = of_registry(http, "http:root/go-1")
    assert again is not None
    assert again["state"] == "working"


def test_a_draining_worker_gets_no_message_and_is_informed(
    http: httpx.Client, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_workers, "RECORD_EVERY_S", 0)
    claim(http, "w.drain", worker="go-2")
    queue.publish("w.drain")

    http.post("/v1/workers/drain", json={"name": "http:root/go-2"})
    answer = http.post("/v1/claim", json={"topics": ["w.drain"], "worker": "go-2", "wait": 20})

    assert answer.json() == {"messages": [], "draining": True}
    assert len(claim(http, "w.drain", worker="go-3")) == 1


def test_a_heartbeat_of_locks_updates_the_worker(http: httpx.Client, queue: Queue) -> None:
    published = queue.publish("w.long")
    (message,) = claim(http, "w.long", worker="go-4", lock_duration="10m")
    queue.conn.execute("UPDATE messages.worker SET seen_at = clock_timestamp() - interval '1 hour'")

    http.post(f"/v1/messages/{published}/heartbeat", json={"claim_id": message["claim_id"]})

    worker = of_registry(http, "http:root/go-4")
    assert worker is not None
    assert worker["state"] == "working"
