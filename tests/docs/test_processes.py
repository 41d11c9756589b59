"""docs/processes.md: what it says about threads, forks and new processes holds under the real servers."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from pgrouse import AsyncClient, Client, Waiter, Worker, migrate, publish, wait_for
from tests.daemon.receiver import reserved
from tests.docs.page import Page
from tests.server.deadline import eventually
from tests.server.postgres import Database

PAGE = Page("docs/processes.md")
SHOP, HOOKS = (block for block in PAGE.section("gunicorn").blocks if block.kind.startswith("python "))
LONG_S = 120


def add(prices: list[int]) -> int:
    return sum(prices)


class Server:
    """A web server with an application of the page, and what it printed."""

    def __init__(self, folder: Path, dsn: str, *command: str) -> None:
        self._listens = reserved()
        self.url = f"http://127.0.0.1:{self._listens.getsockname()[1]}"
        self.log = folder / "server.log"
        env = {**os.environ, "PGROUSE_DSN": dsn, "HOME": str(folder)}
        program = [sys.executable, "-m", *(each.format(port=self.url.rpartition(":")[2]) for each in command)]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(program, cwd=folder, env=env, stdout=output, stderr=output)

    def answer(self, path: str = "/") -> httpx.Response | None:
        """Return the answer; None if it does not listen yet."""
        try:
            return httpx.get(self.url + path, timeout=LONG_S)
        except httpx.TransportError:
            assert self.process.poll() is None, self.log.read_text()
            return None

    def answer_of_each(self, count: int, path: str = "/") -> dict[int, Any]:
        """Ask until this many processes have answered; return the last answer of each."""
        answers: dict[int, Any] = {}
        until = time.monotonic() + LONG_S
        while len(answers) < count:
            assert time.monotonic() < until, f"only {answers} answered: {self.log.read_text()}"
            if (answer := self.answer(path)) is not None:
                assert answer.status_code == 200, self.log.read_text()
                answers[answer.json()["process"]] = answer.json()
        return answers

    def stop(self) -> str:
        """Stop it, and return what it printed."""
        self.process.terminate()
        self.process.wait(LONG_S)
        self._listens.close()
        return self.log.read_text()


@pytest.fixture
def serve(database: Database, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*command: str, **files: str) -> Server:
        for name, text in files.items():
            (tmp_path / f"{name.replace('_conf', '.conf')}.py").write_text(text)
        servers.append(Server(tmp_path, database.dsn, *command))
        return servers[-1]

    yield start
    for each in servers:
        each.stop()


@pytest.fixture
def prices(database: Database) -> Iterator[None]:
    """A worker for the topic of the page."""
    with Worker(database.dsn, handlers={"price": add}):
        yield


GUNICORN = ("gunicorn", "shop:app", "--workers", "2", "--bind", "127.0.0.1:{port}")
OPENED_AT_IMPORT = SHOP.text.replace("\n\n\n@topic", "\nwaiter.open()\n\n\n@topic")


@pytest.mark.long
@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["each imports", "preload"])
@pytest.mark.usefixtures("prices")
def test_each_worker_of_gunicorn_opens_what_was_created_at_import(serve: Any, preload: list[str]) -> None:
    server = serve(*GUNICORN, *preload, shop=SHOP.text, gunicorn_conf=HOOKS.text)

    answers = server.answer_of_each(2)

    assert {answer["price"] for answer in answers.values()} == {7}
    assert "Traceback" not in server.stop()


@pytest.mark.long
@pytest.mark.usefixtures("prices")
def test_what_was_opened_at_import_is_refused_after_a_fork_and_works_without(serve: Any) -> None:
    preloaded = serve(*GUNICORN, "--preload", shop=OPENED_AT_IMPORT, gunicorn_conf="")
    assert eventually(preloaded.answer).status_code == 500
    assert re.search(
        r"ForkedProcess: this Waiter was opened in process \d+, of which this process, \d+, is a fork", preloaded.stop()
    )

    server = serve(*GUNICORN, shop=OPENED_AT_IMPORT, gunicorn_conf="")
    assert eventually(server.answer).json()["price"] == 7


ASGI = """
import os
from contextlib import asynccontextmanager

import psycopg
from fastapi import FastAPI
from pgrouse import Waiter, Worker, publish

DSN = os.environ["PGROUSE_DSN"]
waiter = Waiter(DSN)


def add(prices: list[int]) -> int:
    return sum(prices)


@asynccontextmanager
async def lifespan(app):
    async with waiter, Worker(DSN, handlers={"price": add}):
        yield


app = FastAPI(lifespan=lifespan)


@app.get("/")
async def price():
    async with await psycopg.AsyncConnection.connect(DSN, autocommit=True) as conn:
        asked = await publish(conn, "price", [3, 4])
    return {"price": (await waiter.ended(asked, 20)).output, "process": os.getpid()}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    "command",
    [
        ("uvicorn", "shop:app", "--workers", "2", "--timeout-worker-healthcheck", "60", "--port", "{port}"),
        (*GUNICORN, "--preload", "-k", "uvicorn.workers.UvicornWorker"),
    ],
    ids=["uvicorn", "gunicorn with preload"],
)
def test_each_process_of_an_asgi_server_has_what_its_lifespan_opens(
    serve: Any, db: psycopg.Connection[Any], command: tuple[str, ...]
) -> None:
    server = serve(*command, shop=ASGI)

    answers = server.answer_of_each(2)

    assert {answer["price"] for answer in answers.values()} == {7}
    registered = {pid for (pid,) in db.execute("SELECT w.pid FROM messages.worker AS w")}
    assert registered == answers.keys()
    printed = server.stop()
    assert "Traceback" not in printed, printed


@pytest.mark.long
def test_a_reload_of_uvicorn_ends_the_lifespan_before_the_next_process_has_its_own(
    serve: Any, db: psycopg.Connection[Any], tmp_path: Path
) -> None:
    server = serve("uvicorn", "shop:app", "--reload", "--port", "{port}", shop=ASGI)
    [first] = server.answer_of_each(1)

    (tmp_path / "shop.py").write_text(ASGI.replace("sum(prices)", "sum(prices) + 1"))

    eventually(lambda: server.log.read_text().count("Application startup complete.") == 2, within_s=LONG_S)
    [(second, answer)] = server.answer_of_each(1).items()
    assert (second != first, answer["price"]) == (True, 8)
    assert db.execute("SELECT array_agg(w.pid) FROM messages.worker AS w").fetchall() == [([second],)]
    assert "Traceback" not in server.stop()


SPAWNING = """
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

import psycopg


def add(dsn, prices):
    with psycopg.connect(dsn) as conn:
        return conn.execute("SELECT sum(n) FROM unnest(%s::int[]) AS n", [prices]).fetchone()[0]


def price(prices):
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(add, os.environ["PGROUSE_DSN"], prices).result(60)
"""


@pytest.mark.long
def test_a_handler_may_start_processes_by_spawn(
    database: Database, tmp_path: Path, db: psycopg.Connection[Any]
) -> None:
    (tmp_path / "spawning.py").write_text(SPAWNING)
    (tmp_path / "pgrouse.toml").write_text('[topics.price]\nhandler = "spawning:price"\n')
    command, env = [Path(sys.executable).with_name("pgrouse"), "run"], {**os.environ, "PGROUSE_DSN": database.dsn}
    message_id = publish(db, "price", [3, 4])

    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log)
    try:
        ended = wait_for(database.dsn, message_id, LONG_S)
    finally:
        daemon.terminate()
        daemon.wait(LONG_S)

    assert (ended.output, daemon.returncode) == (7, 0), (tmp_path / "log").read_text()
    assert (tmp_path / "log").read_text().count("daemon.started") == 1


def test_in_a_notebook_everything_is_refused_or_awaited(database: Database) -> None:
    async def cells() -> None:
        await asyncio.to_thread(migrate, database.dsn)
        worker = Worker(database.dsn, handlers={"price": add})
        await worker.start()
        async with AsyncClient(database.dsn) as queue, Waiter(database.dsn) as waiter:
            message_id = await queue.publish("price", [3, 4])
            for refused in (
                lambda: Client(database.dsn),
                lambda: wait_for(database.dsn, message_id),
                lambda: waiter.wait_for(message_id),
            ):
                with pytest.raises(RuntimeError, match=r"would block the event loop that runs in this thread: use "):
                    refused()
            assert (await waiter.ended(message_id, LONG_S)).output == 7
        await worker.stop()

    asyncio.run(cells())


CELERY = """
import os
from pathlib import Path

from celery import Celery
from pgrouse import Waiter

app = Celery(broker="filesystem://")
app.conf.update(
    broker_transport_options={"data_folder_in": "tasks", "data_folder_out": "tasks", "control_folder": "control"}
)
waiter = Waiter(os.environ["PGROUSE_DSN"])
"""
WAIT = """

@app.task
def wait(message_id):
    try:
        answer = waiter.wait_for(message_id, 20).output
    except RuntimeError as error:
        answer = f"{type(error).__name__}: {error}"
    Path(f"answer {message_id}").write_text(str(answer))
"""


@pytest.mark.long
@pytest.mark.parametrize("is_opened_in_each", [True, False])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_celerys_prefork_pool_opens_it_in_each_process(
    database: Database, db: psycopg.Connection[Any], tmp_path: Path, *, is_opened_in_each: bool
) -> None:
    [block] = PAGE.section("Celery and other pools that fork").blocks
    opening = block.text if is_opened_in_each else "waiter.open()\n"
    (tmp_path / "tasks.py").write_text(CELERY + opening + WAIT)
    for folder in ("tasks", "control"):
        (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / "tasks.py").rename(tmp_path / "work.py")
    (tmp_path / "send.py").write_text("import sys\nfrom work import wait\nwait.delay(int(sys.argv[1]))\n")
    env = {**os.environ, "PGROUSE_DSN": database.dsn}
    command = [sys.executable, "-m", "celery", "-A", "work", "worker", "-P", "prefork", "-c", "2", "-l", "warning"]
    message_id = publish(db, "price", [3, 4])
    answer = tmp_path / f"answer {message_id:d}"

    with Worker(database.dsn, handlers={"price": add}):
        wait_for(database.dsn, message_id, LONG_S)
    with (tmp_path / "celery.log").open("wb") as log:
        celery = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=log)
    try:
        subprocess.run([sys.executable, "send.py", f"{message_id:d}"], cwd=tmp_path, env=env, check=True)
        eventually(lambda: answer.exists() and answer.read_text())
    finally:
        celery.terminate()
        celery.wait(LONG_S)

    assert answer.read_text().startswith("7" if is_opened_in_each else "ForkedProcess: this Waiter was opened in")
