"""A message that is small when it is published and huge when it is claimed stops nothing.

It stops neither its topic, nor other claims, nor a page.

`1e131071` is stored in 8 bytes, and is 131,072 characters of text: 9,000 of them are 2,400 bytes of a row, and 1.2 GB
for its worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import errors, sql

from pgrouse.client.message import Message
from pgrouse.client.processing.worker_client import TurnResult
from pgrouse.process.wake_event import WakeEvent, WakeEvents
from pgrouse.worker.execution.capacity import Capacity
from pgrouse.worker.execution.settle_buffer import SettleBuffer
from pgrouse.worker.loop import claim_loop
from pgrouse.worker.loop.claim_loop import ClaimLoop
from pgrouse.worker.loop.claim_planner import ClaimPlanner
from tests.api.site import Site
from tests.cli.shell import Shell
from tests.daemon.process import Daemon, Fleet
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

MIB = 1024 * 1024
# The most that a claim sends to a worker: the number that the claim requests, and the one message that exceeds the
# limit.
MOST = 16 * MIB + 16 * MIB + 65536
# A claim never returns a message of this size.
NEVER = 300


def huge(count: int, number: str = "1e131071") -> str:
    """Return SQL for a JSON array of this many numbers."""
    return f"(SELECT jsonb_agg('{number}'::jsonb) FROM generate_series(1, {count}))"


@pytest.fixture
def start(tmp_path: Any, database: Database) -> Iterator[Callable[..., Daemon]]:
    """`start({"job": "work:echo"})` starts a daemon on this test's database."""
    fleet = Fleet(tmp_path)
    yield lambda topics, **settings: fleet.start(database.connect(), topics, **{"dsn": database.dsn, **settings})
    fleet.kill()


@pytest.fixture
def http(database: Database) -> Iterator[httpx.Client]:
    """A client with all rights, of a web server of its own. Huge payloads take a slow machine long."""
    site = Site(database, statement_timeout="5m")
    with site.client(site.token("viewer", "publisher", "worker", "operator", name="root")) as client:
        client.timeout = httpx.Timeout(600)
        yield client
    site.stop()


def lift_the_bound(queue: Queue) -> None:
    """Accept what is refused, as the owner may: rows are then as if they were published before there was a limit."""
    for domain in ("json_up_to_16_mib", "json_object", "content_size"):
        names = queue.rows("SELECT conname FROM pg_constraint WHERE contypid = to_regtype(%s)", [f"messages.{domain}"])
        for (name,) in names:
            queue.conn.execute(f"ALTER DOMAIN messages.{domain} DROP CONSTRAINT {name}".encode())


def measure_nothing(queue: Queue) -> None:
    """Make a claim ignore sizes: it meets a message that the server cannot return."""
    lift_the_bound(queue)
    if queue.value(
        "SELECT count(*) FROM pg_attribute WHERE attrelid = 'messages.message'::regclass AND attname = 'content_bytes'"
    ):
        queue.conn.execute("ALTER TABLE messages.message ALTER COLUMN content_bytes DROP EXPRESSION")


def poison(queue: Queue, topic: str = "t", count: int = 9000, **columns: Any) -> int:
    return queue.publish(topic, payload=sql.SQL(huge(count)), **columns)


def end_of(queue: Queue, message_id: int) -> Any:
    """Return how a message ended, without its payload; None if it has not."""
    return queue.row(
        "SELECT result, attempts, error, handled_by FROM messages.message_archive WHERE id = %s", [message_id]
    )


# --- refused when it is published


REFUSED = {
    "a bomb of numbers": ("payload", huge(9000)),
    "one that is small": ("payload", huge(300)),
    "numbers that begin with zeros": ("payload", huge(1100, "1e-16383")),
    "zeros that are long": ("payload", huge(1100, "0e-16383")),
    "numbers deep inside": ("payload", f"jsonb_build_object('a', jsonb_build_object('b', {huge(300)}))"),
    "characters that are written as six": ("payload", r"to_jsonb(repeat(E'\x01', 3000000))"),
    "more than 16 MiB": ("payload", "to_jsonb(repeat('a', 16900000))"),
    "headers with a bomb": ("headers", f"jsonb_build_object('a', {huge(300)})"),
    "headers with one number": ("headers", "'{\"a\": 1e131071}'"),
    "headers of more than 64 KiB": ("headers", "jsonb_build_object('a', repeat('a', 65600))"),
}


@pytest.mark.every_server
@pytest.mark.parametrize(("column", "value"), REFUSED.values(), ids=REFUSED)
def test_a_payload_that_is_huge_as_text_is_refused_at_once(queue: Queue, column: str, value: str) -> None:
    queue.conn.execute("SET ROLE messages_publisher")
    given = {"payload": "'1'", column: value}

    with pytest.raises(errors.CheckViolation):
        queue.conn.execute(
            f"INSERT INTO messages.message (topic, {', '.join(given)}) "
            f"VALUES ('t', {', '.join(given.values())})".encode()
        )


@pytest.mark.every_server
@pytest.mark.parametrize("value", [huge(9000), "to_jsonb(repeat('a', 30000000))"], ids=["numbers", "a long string"])
def test_a_compressed_payload_from_a_table_is_measured_uncompressed(queue: Queue, value: str) -> None:
    queue.conn.execute("SET ROLE messages_publisher")
    queue.conn.execute(f"CREATE TEMPORARY TABLE given AS SELECT {value} AS payload".encode())

    with pytest.raises(errors.CheckViolation):
        queue.conn.execute("INSERT INTO messages.message (topic, payload) SELECT 't', payload FROM given")


def test_a_payload_of_almost_16_mib_and_headers_of_almost_64_kib_are_published_and_claimed(queue: Queue) -> None:
    published = queue.publish(
        payload=sql.SQL("to_jsonb(repeat('a', 16777000))"),
        headers=sql.SQL("jsonb_build_object('a', repeat('a', 65000))"),
    )

    (claimed,) = queue.rows("SELECT * FROM messages.claim('w', '{t}', 10)")

    assert (claimed.id, len(claimed.payload)) == (published, 16_777_002)


BOMB = huge(9000)
OTHER_WAYS = {
    "publish": f"SELECT messages.publish('t', {BOMB})",
    "replace": f"SELECT messages.publish('t', {BOMB}, p_key => 'k', p_on_conflict => 'replace')",
    "append": f"SELECT messages.publish('t', {BOMB}, p_key => 'k', p_on_conflict => 'append')",
    "the stage": "INSERT INTO messages.publish_stage (attempt, topic, payload) "
    f"VALUES (gen_random_uuid(), 't', {BOMB})",
    "edit": f"SELECT messages.edit((SELECT max(id) FROM messages.message), {BOMB})",
    "headers of an edit": "SELECT messages.edit((SELECT max(id) "
    "FROM messages.message), p_headers => "
    f"jsonb_build_object('a', {BOMB}))",
    "redrive": f"SELECT messages.redrive_edited((SELECT min(id) FROM messages.message_archive), {BOMB})",
    "a schedule": f"INSERT INTO messages.schedule (name, cron, topic, payload) VALUES ('s', '* * * * *', 't', {BOMB})",
    "the state of a retry": "SELECT messages.retry(ARRAY[h.id], ARRAY[h.claim_id], "
    f"'{{e}}', NULL, ARRAY[{BOMB}]) FROM held AS h",
    "the state of a defer": f"SELECT messages.defer(ARRAY[h.id], ARRAY[h.claim_id], '{{1 "
    f"s}}', NULL, ARRAY[{BOMB}]) FROM held AS h",
    "output": f"SELECT messages.complete(ARRAY[h.id], ARRAY[h.claim_id], ARRAY[{BOMB}]) FROM held AS h",
    "progress": f"SELECT messages.set_progress(ARRAY[h.id], ARRAY[h.claim_id], ARRAY[{BOMB}]) FROM held AS h",
    "a step": f"SELECT messages.save_step(h.id, h.claim_id, 's', {BOMB}) FROM held AS h",
}


@pytest.mark.every_server
@pytest.mark.parametrize("way", OTHER_WAYS.values(), ids=OTHER_WAYS)
def test_every_other_way_to_publish_refuses_huge_payloads_too(queue: Queue, way: str) -> None:
    queue.publish("dead")
    queue.conn.execute(
        "SELECT messages.reject(ARRAY[id], ARRAY[claim_id], '{no}') FROM messages.claim('w', '{dead}', 1)"
    )
    queue.publish("held", max_attempts=9)
    queue.conn.execute("CREATE TEMPORARY TABLE held AS SELECT id, claim_id FROM messages.claim('w', '{held}', 1)")
    queue.publish("t", key="k", payload=sql.SQL("'[1]'"))

    with pytest.raises((errors.CheckViolation, errors.InvalidParameterValue)):
        queue.conn.execute(way.encode())

    # Nothing else caused it: it is not the connection, the memory or the time that ended this.
    assert queue.value("SELECT count(*) FROM messages.message") == 2


def test_repeated_appends_end_at_the_limit(queue: Queue) -> None:
    append = f"SELECT messages.publish('t', {huge(40)}, p_key => 'k', p_on_conflict => 'append')".encode()
    for _ in range(3):
        queue.conn.execute(append)

    with pytest.raises(errors.CheckViolation):
        queue.conn.execute(append)

    (claimed,) = queue.rows("SELECT * FROM messages.claim('w', '{t}', 10)")
    assert len(claimed.payload) <= MOST


# --- a claim is bounded by the size of what it returns


@pytest.mark.every_server
@pytest.mark.parametrize("channel", [None, "c"])
def test_a_claim_is_bounded_by_its_byte_limit_however_little_is_stored(queue: Queue, channel: str | None) -> None:
    published = queue.publish_many(6, channel=channel, payload=sql.SQL(f"{huge(100)} || to_jsonb(n)"))

    claimed = queue.rows("SELECT * FROM messages.claim('w', '{t}', 60)")

    assert sum(len(each.payload) for each in claimed) <= MOST
    assert [each.id for each in claimed] == published[: len(claimed)]
    # The others are not locked: another worker gets them.
    (other,) = queue.rows("SELECT * FROM messages.claim('v', '{t}', 60, p_bytes => 1)")
    assert other.id == published[len(claimed)]


def test_compressed_payloads_headers_and_states_count_uncompressed(queue: Queue) -> None:
    long = sql.SQL("to_jsonb(repeat('a', 4000000))")
    published = queue.publish_many(12, payload=long, max_attempts=9)
    queue.conn.execute(
        "UPDATE messages.message SET payload = '1', state = to_jsonb(repeat('a', 4000000)) WHERE id > %s",
        [published[5]],
    )

    first = queue.rows("SELECT * FROM messages.claim('w', '{t}', 100)")
    second = queue.rows("SELECT * FROM messages.claim('w', '{t}', 100)")

    assert (len(first), len(second)) == (5, 5)


# --- messages that are older than the limit


@pytest.mark.every_server
@pytest.mark.parametrize("channel", [None, "c"])
def test_a_message_that_no_claim_can_return_is_rejected_and_the_others_continue(
    queue: Queue, channel: str | None
) -> None:
    queue.conn.execute("INSERT INTO messages.topic (topic, dead_letter) VALUES ('t', true)")
    lift_the_bound(queue)
    guilty = poison(queue, count=NEVER, channel=channel)
    others = [*queue.publish_many(3, channel=channel), *queue.publish_many(3, "other")]

    claimed = queue.rows("SELECT * FROM messages.claim('w', '{t,other}', 100)")

    assert {each.id for each in claimed} == set(others)
    end = end_of(queue, guilty)
    assert (end.result, end.attempts, end.handled_by) == ("rejected", 0, "w")
    assert end.error.startswith("too large: 39322200 bytes as text")
    # A copy of it could not be returned either.
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 't.dlq'") == 0


def test_a_page_of_redrives_continues_past_a_message_that_cannot_be_redriven(queue: Queue) -> None:
    lift_the_bound(queue)
    guilty = poison(queue, count=NEVER)
    queue.conn.execute("SELECT messages.claim('w', '{t}', 1)")
    other = queue.publish()
    queue.conn.execute("SELECT messages.reject(ARRAY[id], ARRAY[claim_id], '{no}') FROM messages.claim('w', '{t}', 1)")
    put_the_bound_back(queue)

    outcomes = {
        each.archived_id: each.outcome for each in queue.rows("SELECT * FROM messages.redrive(%s)", [[guilty, other]])
    }

    assert outcomes == {guilty: "too_large", other: "redriven"}
    # With another payload it can be redriven.
    assert (
        queue.row("SELECT outcome FROM messages.redrive_edited(%s, '1', p_merge => false)", [guilty]).outcome
        == "redriven"
    )


def test_a_page_of_a_replay_continues_past_a_message_that_cannot_be_published_again(queue: Queue) -> None:
    lift_the_bound(queue)
    # More than may be published, and less than what no claim returns.
    guilty, other = poison(queue, count=NEVER // 2), queue.publish()
    held = queue.claim("t", contents=False) + queue.claim("t", contents=False)
    queue.settle("complete", held)
    put_the_bound_back(queue)

    since = "now() - interval '1 hour', now() + interval '1 hour'"
    replayed = queue.rows(f"SELECT * FROM messages.replay('t', {since})")

    assert {each.archived_id: each.outcome for each in replayed} == {guilty: "too_large", other: "replayed"}


def put_the_bound_back(queue: Queue) -> None:
    queue.conn.execute(
        "ALTER DOMAIN messages.content_size ADD CONSTRAINT message_contents_fit_16_mib CHECK (VALUE <= 16842752) "
        "NOT VALID"
    )


def test_an_operator_replaces_the_payload_of_a_message_that_is_too_large(queue: Queue) -> None:
    measure_nothing(queue)
    guilty = poison(queue)

    assert queue.value("SELECT messages.edit(%s, '1')", [guilty]) == "edited"

    (claimed,) = queue.rows("SELECT * FROM messages.claim('w', '{t}', 1)")
    assert (claimed.id, claimed.payload) == (guilty, "1")


# --- a daemon, and workers over HTTP, that meet a message that the server cannot return


@pytest.mark.slow
def test_a_daemon_runs_all_others_and_rejects_a_message_that_cannot_be_returned(
    start: Callable[..., Daemon], queue: Queue
) -> None:
    measure_nothing(queue)
    queue.conn.execute("INSERT INTO messages.topic (topic, max_attempts) VALUES ('job', 3)")
    guilty = [poison(queue, "job"), poison(queue, "job", headers=sql.SQL(f"jsonb_build_object('a', {huge(9000)})"))]
    others = [*queue.publish_many(40, "job"), *queue.publish_many(40, "other")]

    daemon = start({"job": "work:echo", "other": "work:echo"})

    eventually(lambda: queue.ids() == [], 120)
    ends = {row.id: row for row in queue.rows("SELECT id, result, attempts, error FROM messages.message_archive")}
    assert {(ends[each].result, ends[each].attempts) for each in others} == {("success", 1)}
    assert {(ends[each].result, ends[each].attempts) for each in guilty} == {("rejected", 1)}
    assert all("cannot return its contents" in ends[each].error and "54000" in ends[each].error for each in guilty)
    assert {each["message_id"] for each in daemon.events("message.rejected")} == set(guilty)
    # It claims as before: new messages are returned with their contents, and many at once.
    later = queue.publish_many(200, "job")
    assert {eventually(lambda each=each: queue.archived(each)).result for each in later} == {"success"}


def test_a_worker_over_http_gets_all_others_and_a_message_that_cannot_be_returned_is_rejected(
    http: httpx.Client, queue: Queue
) -> None:
    measure_nothing(queue)
    guilty = poison(queue, "job")
    others = [*queue.publish_many(3, "job"), *queue.publish_many(3, "other")]

    got: list[int] = []
    while (
        found := http.post("/v1/claim", json={"topics": ["job", "other"], "limit": 100})
        .raise_for_status()
        .json()["messages"]
    ):
        got += [each["id"] for each in found]
        assert all(each["payload"] in (1, 2, 3) for each in found)

    assert sorted(got) == others
    end = end_of(queue, guilty)
    assert (end.result, end.attempts, end.handled_by) == ("rejected", 1, "http:root")
    assert "cannot return its contents" in end.error


class Slow:
    """A store that never answers a claim with one certain message in it."""

    conn = None

    def __init__(self, *ids: int, never: int) -> None:
        self.waiting = list(ids)
        self.never = never
        self.limits: list[tuple[int, bool]] = []
        self.rejected: list[tuple[int, str]] = []
        self.locked: list[int] = []

    async def settle_and_claim(self, ended: Any, want: Any, **rest: Any) -> TurnResult:
        self.waiting = [each for each in self.waiting if each not in {one.message.id for one in ended}]
        if want is None:
            return TurnResult()
        self.limits.append((want.limit, want.contents))
        self.locked = self.waiting[: want.limit]
        if want.contents and self.never in self.locked:
            await asyncio.Event().wait()
        return TurnResult([message(each) for each in self.locked])

    async def contents(self, one: Message) -> Message:
        if one.id == self.never:
            await asyncio.Event().wait()
        self.waiting.remove(one.id)
        return one

    async def reject(self, one: Message, reason: str) -> None:
        self.rejected.append((one.id, reason))
        self.waiting.remove(one.id)

    async def release_orphaned(self, known: list[int]) -> list[int]:
        self.locked = []
        return []


def message(number: int) -> Message:
    return Message(number, 7, "job", None, None, 5, 1, 1, "1", None, None, None, 30.0, None, 0.0, 0.0)


def test_a_claim_without_an_answer_in_time_becomes_smaller_until_only_the_cause_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_loop, "TURN_TIMEOUT_S", 0.5)
    store = Slow(*range(1, 101), never=5)
    begun: list[int] = []
    planner = ClaimPlanner(lambda: Capacity(["job"], None, 100), lambda: 60.0, lambda: 0.0)
    executor = SimpleNamespace(
        topics=["job"],
        in_flight=SimpleNamespace(ids=list, remove=lambda messages: None),
        add=lambda messages, began, waiting: begun.extend(each.id for each in messages),
    )
    settle_buffer = SettleBuffer(WakeEvents())

    async def work() -> None:
        one = ClaimLoop(0, SimpleNamespace(worker="w"), planner, settle_buffer, executor, WakeEvent())

        async def the_same() -> Any:
            if one._claim_is_uncertain:
                await store.release_orphaned([])
                one._claim_is_uncertain = False
            return store

        monkeypatch.setattr(one, "_connected_client", the_same)
        for _ in range(50):
            if len(begun) == 99:
                return
            try:
                await one.step()
            except TimeoutError:
                begun[:] = list(dict.fromkeys(begun))

    asyncio.run(work())

    assert sorted(begun) == [each for each in range(1, 101) if each != 5]
    (end,) = store.rejected
    assert end == (5, "its contents did not come within 0.5 s, 2 times")
    # All at once, then few and one by one, then more and more again.
    assert store.limits[0] == (100, True)
    assert store.limits[1] == (8, False)
    assert store.limits[-1][1]


class Away(Slow):
    """A store whose connection becomes doubtful this many times, whenever a message is read."""

    def __init__(self, *ids: int, times: int) -> None:
        super().__init__(*ids, never=0)
        self.times = times
        self.claim_loop: ClaimLoop

    async def settle_and_claim(self, ended: Any, want: Any, **rest: Any) -> TurnResult:
        if want is not None and want.contents:
            raise psycopg.errors.OutOfMemory("out of memory")
        return await super().settle_and_claim(ended, want, **rest)

    async def contents(self, one: Message) -> Message:
        if self.times > 0:
            self.times -= 1
            self.claim_loop.suspect_connection()
            await asyncio.Event().wait()
        return await super().contents(one)


def test_a_message_is_not_rejected_when_the_connection_is_doubtful(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(claim_loop, "SUSPECT_TURN_TIMEOUT_S", 0.05)
    store = Away(1, times=5)
    begun: list[int] = []
    executor = SimpleNamespace(
        topics=["job"],
        in_flight=SimpleNamespace(ids=list, remove=lambda messages: None),
        add=lambda messages, began, waiting: begun.extend(each.id for each in messages),
    )

    async def work() -> None:
        planner = ClaimPlanner(lambda: Capacity(["job"], None, 100), lambda: 60.0, lambda: 0.0)
        one = store.claim_loop = ClaimLoop(
            0, SimpleNamespace(worker="w"), planner, SettleBuffer(WakeEvents()), executor, WakeEvent()
        )  # type: ignore[arg-type]

        async def new() -> Any:
            await one.reset()
            one._claim_is_uncertain = False
            return store

        monkeypatch.setattr(one, "_connected_client", new)
        while not begun and not store.rejected:
            with suppress(TimeoutError, psycopg.Error):
                await one.step()

    asyncio.run(work())

    assert (begun, store.rejected) == ([1], [])


# --- people who look at it


@pytest.mark.parametrize("is_archived", [False, True], ids=["waiting", "archived"])
def test_pages_and_answers_show_a_placeholder_for_what_is_too_large(
    http: httpx.Client, queue: Queue, is_archived: bool
) -> None:
    measure_nothing(queue)
    headers = sql.SQL(f"jsonb_build_object('a', {huge(9000)})")
    guilty, other = poison(queue, "job", headers=headers), queue.publish("job")
    if is_archived:
        queue.call("cancel", [guilty])
    placeholder = "JSON that is too large as text to be shown"

    one = http.get(f"/v1/messages/{guilty}").raise_for_status().json()
    assert (one["payload"], one["headers"]) == (placeholder, placeholder)
    states = {"state": "cancelled"} if is_archived else {}
    found = http.get("/v1/messages", params={"topic": "job", **states}).raise_for_status().json()["messages"]
    assert guilty in [each["id"] for each in found]
    http.get(f"/v1/messages/{guilty}/explain").raise_for_status()
    http.get(f"/v1/messages/{other}/explain").raise_for_status()
    page = {"Accept": "text/html"}
    assert placeholder in http.get(f"/messages/{guilty}", headers=page).raise_for_status().text
    listed = http.get("/messages", params={"topic": "job", **states}, headers=page).raise_for_status().text
    assert f"/messages/{guilty}" in listed


@pytest.mark.parametrize("is_archived", [False, True], ids=["waiting", "archived"])
def test_the_command_line_shows_a_placeholder_for_what_is_too_large(
    queue: Queue,
    database: Database,
    is_archived: bool,
    tmp_path: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGROUSE_DSN", database.dsn)
    pgrouse = Shell(monkeypatch, capsys)
    measure_nothing(queue)
    guilty = poison(queue, "job", headers=sql.SQL(f"jsonb_build_object('a', {huge(9000)})"))
    if is_archived:
        queue.call("cancel", [guilty])

    shown = pgrouse("message", "show", str(guilty))
    assert (shown.code, "JSON that is too large as text to be shown" in shown.out) == (0, True)
    assert str(guilty) in pgrouse("message", "list", *(["--state", "cancelled"] if is_archived else [])).out
    assert pgrouse("explain", str(guilty)).code == 0
