"""The cost of the dashboard: a page of a large queue, the delay of an update, and ten viewers during a drain."""

from __future__ import annotations

import http.client
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from bench import drain, program, usage
from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.usage import Machine

VIEWERS = 10
VIEWS = 30
CHANGES = 20
TOPICS = 20
LIVE = "/live/overview?subject=1h"
# The planner and the triggers are not measured: rows are inserted as a restored dump would insert them.
LARGE = """
SET session_replication_role = replica;
INSERT INTO messages.message (topic, payload)
SELECT 'topic-' || n % {topics}, jsonb_build_object('n', n) FROM generate_series(1, {ready}) AS n;
INSERT INTO messages.message_archive (
  id, topic, priority, payload, created_at, available_at, attempts, result, archived_at)
SELECT 1000000000 + n, 'topic-' || n % {topics}, 5, '1', now() - interval '1 day', now() - interval '1 day', 1,
       CASE WHEN n % 1000 = 0 THEN 'failed' ELSE 'success' END, now() - n % 80000 * interval '1 s'
FROM generate_series(1, {archived}) AS n;
INSERT INTO messages.dead_count (topic, result, count, died_at)
SELECT a.topic, a.result, count(*), date_bin('10 minutes', a.archived_at, 'epoch')
FROM messages.message_archive AS a WHERE a.result = 'failed' GROUP BY 1, 2, 4;
INSERT INTO messages.measure (minute, topic, success, waits, runs, wakes)
SELECT date_trunc('minute', now()) - m * interval '1 minute', 'topic-' || t, 1000, 10::numeric ^ (12 * 30),
       10::numeric ^ (12 * 25), 10::numeric ^ (12 * 35)
FROM generate_series(0, 10079) AS m, generate_series(0, {topics} - 1) AS t;
SET session_replication_role = origin;
ANALYZE"""


def measure(postgres: Postgres, machine: Machine, rounds: int, messages: int, ready: int, archived: int) -> Report:
    """Show a large queue, change something, and drain a backlog with and without viewers."""
    found: dict[str, list[float]] = defaultdict(list)
    with postgres.database("large") as large:
        with large.connect() as conn:
            conn.execute(LARGE.format(ready=ready, archived=archived, topics=TOPICS).encode())
        machine.wait_until_quiet()
        with _web(large) as web:
            found["view"] = [web.view() * 1000 for _ in range(VIEWS + 5)][5:]
            found["change"] = list(_changes(large, web))
    with postgres.database("backlog") as backlog:
        drain.publish(backlog, messages)
        for _ in range(rounds):
            for viewers in (0, VIEWERS):
                _drain(postgres, machine, backlog, messages, viewers, found)
    return _report(found, messages, ready, archived, is_private=postgres.is_private)


class Web:
    """A running web server of the benchmark."""

    def __init__(self, port: int, process: subprocess.Popen[bytes]) -> None:
        self.port, self.process = port, process

    def view(self) -> float:
        """Return how many seconds the overview took to load."""
        began = time.perf_counter()
        answer = self._get("/")
        answer.read()
        if answer.status != 200:
            raise SystemExit(f"the overview answered {answer.status}")
        return time.perf_counter() - began

    def answers(self) -> bool:
        """Return whether it answers."""
        with suppress(OSError):
            return self._get("/livez").status == 200
        return False

    def watch(self) -> Viewer:
        """Return a viewer of the overview."""
        return Viewer(self._get(LIVE))

    def _get(self, path: str) -> http.client.HTTPResponse:
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        conn.request("GET", path)
        return conn.getresponse()


class Viewer:
    """A viewer, in a thread."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self.received: dict[str, float] = {}
        self.updates = 0
        self._more = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def saw(self, text: str, within_s: float = 30) -> float:
        """Wait until an update with this text arrives; return the time of its arrival."""
        with self._more:
            if not self._more.wait_for(lambda: self._when(text) is not None, within_s):
                raise SystemExit(f"after {within_s} s no update with {text}")
            return self._when(text) or 0.0

    def _when(self, text: str) -> float | None:
        return next((at for line, at in self.received.items() if text in line), None)

    def _read(self) -> None:
        with suppress(OSError, http.client.HTTPException, ValueError):
            for raw in self._answer:
                if raw.startswith(b"data: {"):
                    with self._more:
                        self.updates += 1
                        self.received = {raw.decode(): time.perf_counter()}
                        self._more.notify_all()


@contextmanager
def _web(database: Database) -> Iterator[Web]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("pgrouse")), "web", "--listen", f"127.0.0.1:{port}"]
    env = {**os.environ, "PGROUSE_DSN": database.dsn, "PGROUSE_LOG__LEVEL": "warning"}
    process = subprocess.Popen(command, env=env)
    try:
        web = Web(port, process)
        program.wait_until(web.answers, program.START_WITHIN_S, "the web server")
        yield web
    finally:
        process.terminate()
        process.wait(program.STOP_WITHIN_S)


def _changes(database: Database, web: Web) -> Iterator[float]:
    """Yield how many milliseconds after a commit a viewer sees the change."""
    viewer = web.watch()
    viewer.saw("topic-")
    with database.connect() as conn:
        for n in range(CHANGES):
            time.sleep(1.5 + random.random())
            # A page shows only a limited number of problems, and there may be others.
            conn.execute("DELETE FROM messages.condition")
            conn.execute(
                "INSERT INTO messages.condition (kind, topic, since, what, fix) VALUES (%s, '', now(), %s, '')",
                [f"k{n}", f"change-{n}."],
            )
            began = time.perf_counter()
            yield (viewer.saw(f"change-{n}.") - began) * 1000


def _drain(
    postgres: Postgres, machine: Machine, backlog: Database, messages: int, viewers: int, found: dict[str, list[float]]
) -> None:
    with postgres.database("drain", backlog) as database, ExitStack() as ends:
        watching: list[Viewer] = []
        pids: list[int] = []
        if viewers:
            web = ends.enter_context(_web(database))
            watching = [web.watch() for _ in range(viewers)]
            for each in watching:
                each.saw("parts")
            pids = [web.process.pid]
        postgres.checkpoint()
        machine.wait_until_quiet()
        with program.daemon(database, concurrency=drain.CONCURRENCY) as process:
            program.wait_until_registered(database)
            before = _used(postgres, database, process.pid, pids)
            drain.wait_until_drained(database)
            after = _used(postgres, database, process.pid, pids)
        server, daemon, web_cpu, for_web = (late - early for late, early in zip(after, before, strict=True))
        if viewers:
            found["updates"].append(sum(each.updates for each in watching) / viewers)
            found["share"].append(100 * (web_cpu + for_web) / (server + daemon - for_web))
        found[f"cost {viewers}"].append((server + daemon + web_cpu) / messages * 1e6)


def _used(postgres: Postgres, database: Database, daemon: int, web: list[int]) -> tuple[float, float, float, float]:
    """Return the CPU of the server, the daemon, the web server, and the server's processes that work for it."""
    with database.connect() as conn:
        rows = conn.execute(
            "SELECT a.pid FROM pg_stat_activity AS a "
            "WHERE a.application_name IN ('pgrouse web web', 'pgrouse listener web')"
        ).fetchall()
    return postgres.cpu_s(), usage.cpu_s(daemon), usage.cpu_s(*web), usage.cpu_s(*(pid for (pid,) in rows))


def _report(found: dict[str, list[float]], messages: int, ready: int, archived: int, *, is_private: bool) -> Report:
    alone = Figure("a drain that no browser watches, CPU of all", "µs/message", found[f"cost {0}"])
    figures = [
        Figure("the overview, from request to last byte", "ms", found["view"], target=Target(100)),
        Figure("from a commit to a viewer's update", "ms", found["change"], target=Target(500)),
    ]
    if is_private:
        figures += [
            alone,
            Figure(f"one that {VIEWERS} watch, CPU of all", "µs/message", found[f"cost {VIEWERS}"], alone),
            Figure(f"of it for the {VIEWERS} viewers", "% of the drain's", found["share"], target=Target(3)),
        ]
    figures.append(Figure("updates that each viewer got in a drain", "", found["updates"]))
    return Report(
        "dashboard",
        f"{ready:,} ready and {archived:,} archived messages of {TOPICS} topics for the first two; "
        f"{messages:,} messages in each drain.",
        figures,
        ["For the viewers: the web server's CPU and that of its connections' server processes, as /proc has them."],
    )
