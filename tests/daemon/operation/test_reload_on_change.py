"""`pgrouse run --reload`: a daemon for development, which restarts when its handlers change and logs every message."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.daemon.preloaded import Forked
from tests.daemon.process import PGROUSE, Begin, execute
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

pytest.importorskip("watchfiles")

CONFIG = """
[database]
dsn = "{dsn}"
[worker]
shutdown_timeout = "10m"
[topics."job"]
handler = "shop:work"
"""


class Development:
    """A daemon with --reload in a folder of its own."""

    def __init__(self, folder: Path, dsn: str, begin: Begin) -> None:
        self.folder, self.log, self.begin = folder, folder / "log", begin
        self.write("pgrouse.toml", CONFIG.format(dsn=dsn))
        self.process: Forked | subprocess.Popen[bytes]

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def start(self, *arguments: str) -> None:
        command = ["--log-format", "json", *arguments]
        self.process = self.begin(PGROUSE, "run", "--reload", *command, cwd=self.folder, env=os.environ, log=self.log)
        self.pid = self.process.pid

    def says(self, text: str, times: int = 1) -> bool:
        return bool(eventually(lambda: self.log.read_text().count(text) >= times, 60))


@pytest.fixture
def development(tmp_path: Path, database: Database, request: pytest.FixtureRequest) -> Iterator[Development]:
    begin = execute if request.node.get_closest_marker("executed") else Forked
    made = Development(tmp_path, database.dsn, begin)
    yield made
    if made.process.poll() is None:
        made.process.send_signal(signal.SIGKILL)
        made.process.wait(30)


def returning(value: int) -> str:
    return f"async def work(payload):\n    return {value}\n"


@pytest.mark.executed
def test_a_change_restarts_it_in_the_same_process_and_every_message_is_logged(
    development: Development, queue: Queue
) -> None:
    development.write("shop.py", returning(1))
    development.start()
    assert development.says('"daemon.started"')
    first = queue.publish("job")
    assert eventually(lambda: queue.archived(first), 60).output == 1
    assert development.says('"message.completed"')

    development.write("shop.py", returning(2))
    assert development.says('"daemon.started"', times=2)

    second = queue.publish("job")
    assert eventually(lambda: queue.archived(second), 60).output == 2
    assert development.process.poll() is None
    development.process.send_signal(signal.SIGTERM)
    assert development.process.wait(30) == 0


@pytest.mark.long
def test_a_broken_change_is_reported_and_the_old_handlers_go_on(development: Development, queue: Queue) -> None:
    development.write("shop.py", returning(1))
    development.start()
    assert development.says('"daemon.started"')

    development.write("shop.py", "def work(payload):\n    return (\n")
    assert development.says('"daemon.reload_failed"')
    assert development.says("shop.py, line 2")

    published = queue.publish("job")
    assert eventually(lambda: queue.archived(published), 60).output == 1


@pytest.mark.long
def test_a_broken_start_waits_for_a_change(development: Development, queue: Queue) -> None:
    development.write("shop.py", "import nothing_of_that_name\n")
    development.start()
    assert development.says("module shop cannot be imported: ModuleNotFoundError")
    assert development.says("(at shop.py:1)")

    development.write("shop.py", returning(3))

    published = queue.publish("job")
    assert eventually(lambda: queue.archived(published), 60).output == 3


LIFESPAN = """
from contextlib import asynccontextmanager

@asynccontextmanager
async def lifespan():
    raise ValueError("closed today")
    yield
"""


def test_one_whose_lifespan_failed_waits_for_a_change_and_is_stopped_by_a_signal(
    development: Development, database: Database
) -> None:
    with_lifespan = '[handlers]\nlifespan = "shop:lifespan"\n'
    development.write("pgrouse.toml", CONFIG.format(dsn=database.dsn) + with_lifespan)
    development.write("shop.py", returning(3) + LIFESPAN)
    development.start()
    assert development.says("pgrouse: handlers.lifespan: shop:lifespan failed: ValueError: closed today")

    development.process.send_signal(signal.SIGTERM)

    assert development.process.wait(30) == 0


@pytest.mark.long
def test_a_file_of_configuration_elsewhere_is_corrected_twice(
    development: Development, queue: Queue, database: Database
) -> None:
    """An editor puts a new file in its place, each time."""
    development.write("shop.py", returning(5))
    elsewhere = development.folder / "etc" / "shop.toml"
    elsewhere.parent.mkdir()
    right = CONFIG.format(dsn=database.dsn) + f'[handlers]\nimport_path = ["{development.folder}"]\n'

    def save(text: str) -> None:
        elsewhere.with_suffix(".new").write_text(text)
        elsewhere.with_suffix(".new").rename(elsewhere)

    save("[worker")
    development.start("--config", str(elsewhere))
    assert development.says("shop.toml")
    save(right.replace("shop:work", "shop:absent"))
    assert development.says("absent")
    save(right)

    published = queue.publish("job")
    assert eventually(lambda: queue.archived(published), 60).output == 5


@pytest.mark.long
def test_a_handler_that_runs_does_not_hold_up_the_restart(development: Development, queue: Queue) -> None:
    development.write("shop.py", "import asyncio\nasync def work(payload):\n    await asyncio.sleep(3600)\n")
    development.start()
    assert development.says('"daemon.started"')
    held = queue.publish("job")
    eventually(lambda: queue.message(held).claim_id)

    development.write("shop.py", returning(4))

    assert eventually(lambda: queue.archived(held), 60).output == 4
