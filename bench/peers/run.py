"""One run of one peer, with checked counts: a drain, messages one at a time, or a bulk publish."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench import drain, program, usage
from bench.latency import WARM_UP, Delay
from bench.peers.peer import BEST, PGROUSE, Peer
from bench.postgres import Database, Postgres
from bench.usage import Machine
from psycopg.conninfo import conninfo_to_dict

WITHIN_S = 150
CHUNK = 1000
# A message that is processed twice shows up soon after the last message.
LISTEN_FOR_MORE_S = 0.3


class PeerFailed(Exception):
    """A program ended with an error, or its counts are wrong; the text says which."""


@dataclass(frozen=True)
class Trickled:
    """The results of messages that were published one at a time.

    Attributes:
        delays: how long each took.
        server_cores: CPU of the server in cores, publishes included; NaN when it is on another machine.
        worker_cores: CPU of the worker in cores.
    """

    delays: list[Delay]
    server_cores: float
    worker_cores: float


@dataclass(frozen=True)
class Entrant:
    """A peer, and the command of its program."""

    peer: Peer
    command: list[str]

    @contextmanager
    def database(self, postgres: Postgres) -> Iterator[Database]:
        """Make a database with the peer's tables."""
        is_pgrouse = self.peer is PGROUSE
        with postgres.database(f"for_{Path(self.peer.program).stem}", with_schema=is_pgrouse) as made:
            if not is_pgrouse:
                self.call(made, "install")
            yield made

    def call(self, database: Database, *arguments: object) -> Any:
        """Run a command of the program to its end; return what it printed."""
        return self.calls(database, [[*arguments]])[0]

    def calls(self, database: Database, commands: list[list[object]]) -> list[Any]:
        """Run commands at the same time, to their ends.

        Raises:
            PeerFailed: a command ended with an error.
        """
        started = [self._start(database, *arguments) for arguments in commands]
        try:
            printed = [each.communicate(timeout=WITHIN_S)[0] for each in started]
        finally:
            for process in started:
                process.kill()
        for process, arguments in zip(started, commands, strict=True):
            if process.returncode != 0:
                raise PeerFailed(f"its `{arguments[0]}` ended with {process.returncode}")
        return [json.loads(each) if each.strip() else None for each in printed]

    def publish(self, database: Database, count: int, chunk: int = CHUNK) -> float:
        """Publish in bulk; return the seconds."""
        took = float(self.call(database, "publish", 1, count, chunk)["seconds"])
        self.expect(database, self.peer.left, count, "are in its tables")
        return took

    @contextmanager
    def worker(self, database: Database, settings: str, marks: Path, messages: int = 0) -> Iterator[subprocess.Popen]:
        """Run a worker; marks: the file for its handler's records; messages: how many a drain has, 0 = record each."""
        if self.peer is PGROUSE:
            concurrency = drain.CONCURRENCY if settings == BEST else None
            noop = "tally" if messages else "mark"
            with program.daemon(
                database, concurrency=concurrency, noop=noop, marks=marks, messages=messages
            ) as process:
                yield process
            return
        env = {"PGROUSE_BENCH_MARKS": str(marks), "PGROUSE_BENCH_MESSAGES": str(messages)}
        process = self._start(database, "work", settings, env=env)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def expect(self, database: Database, query: str, count: int, what: str) -> None:
        """Check a count.

        Raises:
            PeerFailed: it is another one.
        """
        found = _count(database, query)
        if found != count:
            raise PeerFailed(f"{count} messages, but {found} {what}")

    def _start(self, database: Database, *arguments: object, env: dict[str, str] | None = None) -> subprocess.Popen:
        """Start the program; its errors go to the standard error of this process."""
        kept = {name: value for name, value in os.environ.items() if self.peer is PGROUSE or name != "PYTHONPATH"}
        return subprocess.Popen(
            [*self.command, *map(str, arguments)],
            env={**kept, "PGROUSE_BENCH_URL": url(database), **(env or {})},
            stdout=subprocess.PIPE,
            text=True,
        )


def drained(postgres: Postgres, machine: Machine, entrant: Entrant, backlog: Database, settings: str) -> float:
    """Let a peer process a copy of a backlog; return the messages per second.

    The time runs from the first start of a handler until its tables have no messages left.
    """
    messages = _count(backlog, entrant.peer.left)
    with postgres.database("drain", backlog) as database, tempfile.TemporaryDirectory() as folder:
        marks = program.Marks(Path(folder) / "marks")
        postgres.checkpoint()
        machine.wait_until_quiet()
        with entrant.worker(database, settings, marks.file, messages) as process:
            _wait(process, lambda: "last" in marks.read(), "its last message")
            _wait(process, lambda: _count(database, entrant.peer.left) == 0, "its tables to be empty")
            end = time.monotonic_ns()
            time.sleep(LISTEN_FOR_MORE_S)
        _check(entrant, database, marks.read(), messages)
        return messages / (end - marks.read()["first"]) * 1e9


def trickled(
    postgres: Postgres,
    machine: Machine,
    entrant: Entrant,
    *,
    settings: str,
    messages: int,
    every: float,
    publishers: int,
) -> Trickled:
    """Publish messages one at a time to a worker that waits for them."""
    with entrant.database(postgres) as database, tempfile.TemporaryDirectory() as folder:
        marks = program.Marks(Path(folder) / "marks")
        with entrant.worker(database, settings, marks.file) as process:
            # The first message shows when the worker is ready.
            entrant.call(database, "trickle", 0, 1, 0)
            _wait(process, lambda: "0" in marks.read(), "its first message")
            machine.wait_until_quiet()
            each = messages // publishers + WARM_UP
            firsts = [1 + each * number for number in range(publishers)]
            before = time.monotonic(), postgres.cpu_s(), usage.family_cpu_s(process.pid)
            sent = entrant.calls(database, [["trickle", first, each, every * publishers] for first in firsts])
            numbers = [list(range(first, first + each)) for first in firsts]
            everything = {str(n) for batch in numbers for n in batch}
            _wait(process, lambda: everything <= marks.read().keys(), "its last message")
            _wait(process, lambda: _count(database, entrant.peer.left) == 0, "its tables to be empty")
            after = time.monotonic(), postgres.cpu_s(), usage.family_cpu_s(process.pid)
            begun = marks.read()
        took_s, server_s, worker_s = (end - begin for begin, end in zip(before, after, strict=True))
        delays = [
            Delay((begun[str(n)] - called) / 1e6, (begun[str(n)] - returned) / 1e6)
            for batch, times in zip(numbers, sent, strict=True)
            for n, called, returned in list(zip(batch, times["called"], times["returned"], strict=True))[WARM_UP:]
        ]
        return Trickled(delays, server_s / took_s, worker_s / took_s)


def bulk(
    postgres: Postgres, machine: Machine, entrant: Entrant, template: Database, count: int, chunk: int = CHUNK
) -> float:
    """Publish into empty tables; return the rows per second."""
    with postgres.database("bulk", template) as database:
        postgres.checkpoint()
        machine.wait_until_quiet()
        return count / entrant.publish(database, count, chunk)


def copied(postgres: Postgres, machine: Machine, template: Database, count: int, chunk: int) -> float:
    """COPY into pgrouse's empty table, `chunk` rows a transaction; return the rows per second."""
    chunks = [range(at, min(at + chunk, count + 1)) for at in range(1, count + 1, chunk)]
    texts = ["".join(f'noop\t{{"n": {n}}}\n' for n in numbers) for numbers in chunks]
    with postgres.database("bulk", template) as database, database.connect() as conn:
        postgres.checkpoint()
        machine.wait_until_quiet()
        begin = time.monotonic()
        for text in texts:
            with conn.cursor().copy("COPY messages.message (topic, payload) FROM STDIN") as copy:
                copy.write(text)
        took = time.monotonic() - begin
        if _count(database, PGROUSE.left) != count:
            raise SystemExit("COPY lost rows")
        return count / took


def url(database: Database) -> str:
    """Return the address of a database in a form that all drivers read."""
    words = {name: value for name, value in conninfo_to_dict(database.dsn).items() if value is not None}
    return f"postgresql:///{words.pop('dbname')}?{urlencode(words)}"


def _check(entrant: Entrant, database: Database, marks: dict[str, int], messages: int) -> None:
    more = sorted(marks.keys() - {"first", "last"})
    if more:
        raise PeerFailed(f"{len(more)} messages were processed twice, as {more[0]}")
    entrant.expect(database, entrant.peer.left, 0, "are left")
    if entrant.peer.done is not None:
        entrant.expect(database, entrant.peer.done, messages, "are done")


def _wait(process: subprocess.Popen, condition: Any, what: str) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        if process.poll() is not None:
            raise PeerFailed(f"its worker ended with {process.returncode} before {what}")
        if time.monotonic() > deadline:
            raise PeerFailed(f"after {WITHIN_S} s still waiting for {what}")
        time.sleep(0.01)


def _count(database: Database, query: str) -> int:
    with database.connect() as conn:
        row = conn.execute(query.encode()).fetchone()
    return int(row[0]) if row else 0
