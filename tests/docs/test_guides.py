"""docs/guides.md: a reader who types each guide sees what it shows, and the files do what the text says."""

from __future__ import annotations

import asyncio
import atexit
import hmac
import importlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import psycopg
import psycopg.sql
import pytest

from pgrouse.client.apply.configuration_change import apply
from pgrouse.config import config
from pgrouse.handlers.declaration.discovery import with_declared
from pgrouse.testing import at, drain
from tests.daemon.receiver import reserved
from tests.docs.address import address
from tests.docs.environment import fresh_environment
from tests.docs.page import Block, Page
from tests.docs.reader import Reader, steady
from tests.server.postgres import Database

PAGE = Page("docs/guides.md")
FAN_OUT, CRM, TAKE, SEND, MORNING, HOURS, ERASE, ARGUMENTS, DEPENDS, ALEMBIC, CI, DEVELOP = (
    "Fan out, and join",
    "Call an API that limits its callers",
    "Take webhooks of others",
    "Send webhooks",
    "Do something every morning",
    "Work for hours",
    "Erase what belongs to a person",
    "Several arguments",
    "FastAPI's Depends and handlers",
    "Migrate with Alembic",
    "Migrations in CI and in a deployment",
    "Develop with one command",
)
# Ports, which the page chooses and the tests may not, and the width of columns.
VARIES = ((r"127\.0\.0\.1:\d+", "HOST"), (r"-{3,}", "-"), (r" +", " "))
SECRET = "the secret"


class OtherServer(ThreadingHTTPServer):
    """A server of somebody else: it answers as the test says, and keeps the calls."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), OtherHandler)
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.calls: list[tuple[str, dict[str, str], bytes]] = []
        self.url = f"http://127.0.0.1:{self.server_port}"


class OtherHandler(BaseHTTPRequestHandler):
    """Answers one call of it; 200 unless the test says otherwise."""

    server: OtherServer

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.calls.append((self.path, dict(self.headers), content))
        status, headers = self.server.answers.pop(0) if self.server.answers else (200, {})
        self.send_response(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    do_POST = do_PUT  # noqa: N815 - as the server calls it

    def log_message(self, *_args: Any) -> None:
        pass


@pytest.fixture
def other() -> Iterator[OtherServer]:
    server = OtherServer()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class Guide:
    """The files of a guide as modules, whose policies and schedules are in force."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database, self.conn, self.folder = database, database.connect(), folder

    def load(self, title: str, name: str) -> ModuleType:
        """Save the files of a guide, and import one of them, as a worker does."""
        for block in files(title):
            (self.folder / block.kind.split()[1]).write_text(block.text + "\n")
        module = importlib.import_module(name)
        apply(self.conn, with_declared(config.load(environ={}, overrides={"handlers": {"modules": [name]}})))
        return module


def files(title: str) -> list[Block]:
    """Return the blocks of a guide that are files."""
    return [block for block in PAGE.section(title).blocks if "." in block.kind]


@pytest.fixture
def guide(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: OtherServer) -> Iterator[Guide]:
    for name, value in (("CRM_URL", other.url), ("WEBHOOK_SECRET", SECRET), ("PGROUSE_DSN", database.dsn)):
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield Guide(database, tmp_path)
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and Path(str(sys.modules[name].__file__)).parent == tmp_path:
            del sys.modules[name]


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fresh_environment(tmp_path_factory.mktemp("reader"), PAGE)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.timeout(600)  # a registry may be slow
@pytest.mark.parametrize("title", [FAN_OUT, CRM, TAKE, SEND, MORNING, HOURS])
def test_a_reader_who_types_the_guide_sees_what_it_shows(
    title: str,
    database: Database,
    tmp_path: Path,
    other: OtherServer,
    eventually: Callable[..., Any],
    environment: Path,
) -> None:
    if title == TAKE and shutil.which("curl") is None:
        pytest.skip("curl is missing: `apt-get install curl`")
    blocks = [_at_free_ports(block, other) for block in PAGE.section(title).blocks if " " in block.kind]
    reader = Reader(tmp_path, database, eventually, environment=environment)
    reader.env |= {"CRM_URL": other.url, "WEBHOOK_SECRET": SECRET}

    try:
        done = [(block.line, steady(reader.follow(block), VARIES)) for block in blocks]
    finally:
        reader.stop()

    assert len(blocks) > 2
    assert done == [(block.line, steady(block.text, VARIES)) for block in blocks]


@pytest.mark.long
@pytest.mark.parametrize("title", [ARGUMENTS, DEPENDS, CI])
def test_a_reader_who_types_the_recipe_sees_what_it_shows(
    title: str, database: Database, tmp_path: Path, other: OtherServer, eventually: Callable[..., Any]
) -> None:
    if title == DEPENDS and shutil.which("curl") is None:
        pytest.skip("curl is missing: `apt-get install curl`")

    assert _follow(title, database, tmp_path, other, eventually) > 2


@pytest.mark.long
def test_alembic_migrates_both_schemas_in_one_transaction(
    empty_database: Database, tmp_path: Path, other: OtherServer, eventually: Callable[..., Any]
) -> None:
    assert _follow(ALEMBIC, empty_database, tmp_path, other, eventually) > 2

    conn = empty_database.connect()
    assert conn.execute("SELECT count(*) FROM orders, messages.message").fetchone() == (0,)


def _follow(title: str, database: Database, folder: Path, other: OtherServer, eventually: Callable[..., Any]) -> int:
    """Let a reader type a guide, with the packages of the tests; return how many blocks it has, if it is right."""
    blocks = [_at_free_ports(block, other) for block in PAGE.section(title).blocks if " " in block.kind]
    reader = Reader(folder, database, eventually)
    reader.env["DATABASE_URL"] = address(database.dsn)
    try:
        done = [(block.line, steady(reader.follow(block), VARIES)) for block in blocks]
    finally:
        reader.stop()
    assert done == [(block.line, steady(block.text, VARIES)) for block in blocks]
    return len(blocks)


@pytest.mark.long
def test_one_command_serves_for_development_until_ctrl_c(
    database: Database, tmp_path: Path, eventually: Callable[..., Any]
) -> None:
    for title in (CI, DEVELOP):
        for block in files(title):
            if block.kind.endswith(".py"):
                (tmp_path / block.kind.split()[1]).write_text(block.text + "\n")
    url = f"http://127.0.0.1:{_free_port()}"
    env = {
        **os.environ,
        "PGROUSE_TEST_DSN": database.dsn,
        "PGROUSE_WEB__LISTEN": url.removeprefix("http://"),
        "PYTHONPATH": str(tmp_path),
    }
    log = tmp_path / "dev.log"
    with log.open("wb") as output:
        command = [sys.executable, "dev.py"]
        running = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=output, stderr=output, start_new_session=True)
    try:
        eventually(lambda: "export PGROUSE_DSN" in log.read_text() and _is_alive(url))
        [dsn] = re.findall("export PGROUSE_DSN='(.*)'", log.read_text())
        with psycopg.connect(dsn, autocommit=True) as conn:
            eventually(lambda: conn.execute("SELECT FROM messages.worker").fetchone() is not None)
    finally:
        os.killpg(running.pid, signal.SIGINT)
        ended = running.wait(60)

    assert ended == 0, log.read_text()
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        psycopg.connect(dsn)


def _is_alive(url: str) -> bool:
    try:
        return httpx.get(f"{url}/livez").is_success
    except httpx.TransportError:
        return False


def test_the_server_that_says_yes_answers_what_the_guides_send(tmp_path: Path, eventually: Callable[..., Any]) -> None:
    [block] = [each for each in PAGE.section("A server that says yes").blocks if each.kind == "python yes.py"]
    (tmp_path / "yes.py").write_text(block.text.replace("9000", str(_free_port())))
    server = subprocess.Popen([sys.executable, tmp_path / "yes.py"], stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{_free_port()}/a"
    try:
        eventually(lambda: _answers(url))
        assert [send(url, json={"n": 1}).status_code for send in (httpx.put, httpx.post)] == [200, 200]
    finally:
        server.terminate()
        server.wait(60)


def _answers(url: str) -> bool:
    try:
        return httpx.put(url, json={}).is_success
    except httpx.TransportError:
        return False


def _at_free_ports(block: Block, other: OtherServer) -> Block:
    return replace(block, text=block.text.replace("9000", str(other.server_port)).replace("8000", str(_free_port())))


@cache
def _kept() -> socket.socket:
    kept = reserved()
    atexit.register(kept.close)
    return kept


def _free_port() -> int:
    """Return one port, for all blocks of the page, which no other process gets."""
    return int(_kept().getsockname()[1])


def test_an_api_says_how_long_to_wait_and_what_is_final(guide: Guide, other: OtherServer) -> None:
    update = guide.load(CRM, "crm").update_customer
    other.answers = [(404, {})]
    update.publish(guide.conn, {"id": "8"})
    assert [each.outcome for each in drain(guide.conn, [update])] == ["reject"]
    assert other.calls[0][0] == "/customers/8"

    other.answers = [(429, {"Retry-After": "7"}), (503, {}), (200, {})]
    update.publish(guide.conn, {"id": "7"})
    # Ten a second: the next one may start a tenth of a second after the first.
    with at(guide.conn, "1s"):
        [limited] = drain(guide.conn, [update])
    assert (limited.outcome, limited.after) == ("defer", timedelta(seconds=7))
    with at(guide.conn, "9s"):
        [down] = drain(guide.conn, [update])
    assert (down.outcome, down.after) == ("retry", None)
    with at(guide.conn, "1h"):
        [done] = drain(guide.conn, [update])
    assert done.outcome == "complete"


def test_an_event_that_is_sent_again_is_one_message_even_after_it_was_worked(guide: Guide) -> None:
    module = guide.load(TAKE, "payments")
    event = {"id": "evt_1", "type": "paid", "amount": 3}

    assert [_send(module.app, event) for _ in range(2)] == [202, 202]
    assert [each.output for each in drain(guide.conn, [module.work_event])] == ["paid"]
    assert _send(module.app, event) == 202
    assert _send(module.app, {"type": "paid"}) == 422

    assert list(drain(guide.conn, [module.work_event])) == []


def _send(app: Any, event: dict[str, Any]) -> int:
    """Send an event to the application, and return its status."""

    async def send() -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as sender:
            return (await sender.post("/hooks/payments", json=event)).status_code

    return asyncio.run(send())


def test_each_receiver_gets_the_event_with_a_signature_and_the_same_id_in_each_attempt(
    guide: Guide, other: OtherServer
) -> None:
    send = guide.load(SEND, "webhooks").send_webhook
    for path in "ab":
        send.publish(guide.conn, {"url": f"{other.url}/{path}", "event": {"order": 7}}, channel=path)
    other.answers = [(500, {}), (200, {})]
    attempts = drain(guide.conn, [send])
    with at(guide.conn, "1h"):
        attempts += drain(guide.conn, [send])

    again = [each.outcome for each in attempts if each.id == attempts[0].id]
    assert (again, len(attempts)) == (["retry", "complete"], 3)
    assert sorted(path for path, _, _ in other.calls) == ["/a", "/a", "/b"]
    assert len({headers["X-Event-Id"] for _, headers, _ in other.calls}) == 2
    _, headers, content = other.calls[0]
    assert headers["X-Signature"] == hmac.new(SECRET.encode(), content, sha256).hexdigest()


def test_importing_the_handlers_of_webhooks_sends_nothing(guide: Guide) -> None:
    guide.load(SEND, "webhooks")

    assert guide.conn.execute("SELECT count(*) FROM messages.message").fetchone() == (0,)


def test_the_report_is_published_every_morning(guide: Guide) -> None:
    guide.load(MORNING, "reports")

    row = guide.conn.execute("SELECT cron, time_zone, missed::text FROM messages.schedule").fetchone()
    assert row == ("0 7 * * *", "Europe/Berlin", "once")


def test_long_work_does_no_step_twice(guide: Guide) -> None:
    module = guide.load(HOURS, "video")
    parts: list[str] = []

    async def encode_part(part: str) -> str:
        parts.append(part)
        if len(parts) == 2:
            raise RuntimeError("the encoder crashed")
        return part

    module.encode_part = encode_part  # type: ignore[attr-defined]
    module.encode.publish(guide.conn, {"path": "film"})

    # Async handlers have an own connection for their steps.
    [crashed] = drain(guide.database.dsn, [module.encode])
    guide.conn.execute("UPDATE messages.message SET available_at = now() WHERE topic = 'video.encode'")
    [done] = drain(guide.database.dsn, [module.encode])

    assert (crashed.outcome, "the encoder crashed" in crashed.error) == ("retry", True)
    assert done.output == ["film.1", "film.2"]
    assert parts == ["film.1", "film.2", "film.2"]


def test_nothing_in_the_schema_names_a_person_who_was_erased(guide: Guide) -> None:
    conn = guide.conn
    conn.execute("UPDATE messages.topic SET key_ttl = '7 days', channel_min_interval = '1 ms' WHERE topic = '*'")
    for number in (7, 8):
        for wait in ("0", "1 hour"):
            conn.execute(
                "INSERT INTO messages.message (topic, key, channel, payload, available_at)"
                " VALUES ('t', %s, %s, '{}', now() + %s::interval)",
                [f"person-{number}@example.com {wait}", f"customer {number}", wait],
            )
    conn.execute("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('t', 'customer 7', 1)")
    conn.execute(
        "SELECT messages.publish('throttled', '{}', p_key => 'person-7@example.com 0', p_throttle => '1 hour')"
    )
    # One at a time: then the place of the walk over the channels is kept.
    while claimed := conn.execute("SELECT id, claim_id FROM messages.claim('w', ARRAY['t'], 1)").fetchone():
        conn.execute("SELECT messages.complete(%s, %s)", [[each] for each in claimed])
    assert _tables_with(conn, "customer 7") >= {"message", "message_archive", "channel", "claim_cursor", "rate"}
    assert _tables_with(conn, "person-7") >= {"message", "message_archive", "held_key", "throttled_key"}

    by_channel, by_key = (block.text for block in PAGE.section(ERASE).blocks if block.kind == "sql runnable")
    conn.execute(by_channel.encode())
    for wait in ("0", "1 hour"):
        conn.execute(by_key.replace("ada@example.com", f"person-7@example.com {wait}").encode())

    # The operator's actions on the channel stay in the audit, as the page says.
    assert _tables_with(conn, "customer 7") == {"audit"}
    assert _tables_with(conn, "person-7") == set()
    assert "message_archive" in _tables_with(conn, "customer 8")


def test_what_came_of_a_message_of_the_person_is_erased_with_it(guide: Guide) -> None:
    conn = guide.conn
    conn.execute("UPDATE messages.topic SET dead_letter = true WHERE topic = '*'")
    for topic, key in (("a", "ada@example.com"), ("b", "bob@example.com")):
        conn.execute(
            "INSERT INTO messages.message (topic, key, payload) VALUES (%s, %s, to_jsonb(%s::text))", [topic, key, key]
        )
        _fail(conn, topic)
        # Its copy has no key, and neither has the message that its redrive makes while another one holds the key.
        conn.execute(
            "INSERT INTO messages.message (topic, key, payload) VALUES (%s, %s, to_jsonb(%s::text))", [topic, key, key]
        )
        conn.execute(
            "SELECT * FROM messages.redrive(ARRAY(SELECT id FROM messages.message_archive WHERE key = %s))", [key]
        )
    assert _tables_with(conn, "ada@example.com") >= {"message", "message_archive"}

    _, by_key = (block.text for block in PAGE.section(ERASE).blocks if block.kind == "sql runnable")
    conn.execute(by_key.encode())

    assert _tables_with(conn, "ada@example.com") == set()
    assert _tables_with(conn, "bob@example.com") >= {"message", "message_archive"}


def _fail(conn: psycopg.Connection[Any], topic: str) -> None:
    claimed = conn.execute("SELECT id, claim_id FROM messages.claim('w', ARRAY[%s], 1)", [topic]).fetchone()
    assert claimed
    conn.execute("SELECT messages.fail(%s, %s, ARRAY['boom'])", [[each] for each in claimed])


def _tables_with(conn: psycopg.Connection[Any], text: str) -> set[str]:
    """Return the tables of the schema that have a text in any row."""
    tables = conn.execute(
        "SELECT c.relname FROM pg_class AS c "
        "WHERE c.relnamespace = 'messages'::regnamespace AND c.relkind = 'r' AND NOT c.relispartition"
        " UNION ALL SELECT 'message_archive'"
    ).fetchall()
    found = "SELECT EXISTS (SELECT FROM messages.{} AS t WHERE t::text LIKE %s)"
    return {
        name
        for (name,) in tables
        if (
            conn.execute(psycopg.sql.SQL(found).format(psycopg.sql.Identifier(name)), [f"%{text}%"]).fetchone()
            or [False]
        )[0]
    }
