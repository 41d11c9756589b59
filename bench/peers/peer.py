"""The peers: the name and version of each, and queries on its tables for what is done."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
DEFAULTS, BEST, NOTIFIED = "defaults", "best", "notified"


@dataclass(frozen=True)
class Peer:
    """A queue that pgrouse is compared with.

    Attributes:
        name: its name, as its authors write it.
        program: its file in `programs/`.
        package: its name in its package registry; empty for pgrouse.
        left: a query for the number of messages that are not processed.
        done: a query for the number of processed messages; None if it keeps no rows of these.
        best: its best settings; its defaults are what it does without any settings.
        backlog: how many messages it drains in a run, at its defaults and at its best.
        bulk: how many it publishes in a run.
        python: the oldest Python that it runs on.
    """

    name: str
    program: str
    package: str
    left: str
    done: str | None
    best: str
    backlog: tuple[int, int]
    bulk: int = 100_000
    python: tuple[int, int] = (3, 11)

    @property
    def runs_on_node(self) -> bool:
        """Whether its program runs on Node."""
        return self.program.endswith(".mjs")

    @property
    def requirements(self) -> Path:
        """The file that pins its Python packages."""
        return HERE / "requirements" / f"{self.program.removeprefix('with_').removesuffix('.py')}.txt"

    @property
    def version(self) -> str:
        """The version that is pinned."""
        if self.runs_on_node:
            return str(json.loads((HERE / "package.json").read_text())["dependencies"][self.package])
        found = re.search(rf"^{self.package}==(\S+)", self.requirements.read_text(), re.MULTILINE)
        if found is None:
            raise SystemExit(f"{self.requirements} does not pin {self.package}")
        return found[1]


PGROUSE = Peer(
    name="pgrouse",
    program="with_pgrouse.py",
    package="",
    left="SELECT count(*) FROM messages.message",
    done="SELECT count(*) FROM messages.message_archive AS a WHERE a.result = 'success'",
    best="concurrency = 1000",
    backlog=(100_000, 100_000),
)

PEERS = [
    Peer(
        name="graphile-worker",
        program="with_graphile_worker.mjs",
        package="graphile-worker",
        left="SELECT count(*) FROM graphile_worker._private_jobs",
        done=None,
        best="concurrentJobs 100, localQueue 2000, completions in batches",
        backlog=(2_000, 100_000),
    ),
    Peer(
        name="pg-boss",
        program="with_pg_boss.mjs",
        package="pg-boss",
        left="SELECT count(*) FROM pgboss.job AS j WHERE j.state <> 'completed'",
        done="SELECT count(*) FROM pgboss.job AS j WHERE j.state = 'completed'",
        best="batchSize 5000, burstWhenBatchFull, notify",
        backlog=(4, 100_000),
    ),
    Peer(
        name="pgmq",
        program="with_pgmq.py",
        package="pgmq",
        left="SELECT count(*) FROM pgmq.q_noop",
        done="SELECT count(*) FROM pgmq.a_noop",
        best="read and archive 5000 at once",
        backlog=(1_000, 100_000),
    ),
    Peer(
        name="pgqueuer",
        program="with_pgqueuer.py",
        package="pgqueuer",
        left="SELECT count(*) FROM pgqueuer",
        done="SELECT count(*) FROM pgqueuer_log AS l WHERE l.status = 'successful'",
        best="batch_size 1000",
        backlog=(5_000, 50_000),
    ),
    Peer(
        name="pgqrs",
        program="with_pgqrs.py",
        package="pgqrs",
        left="SELECT count(*) FROM pgqrs_messages AS m WHERE m.archived_at IS NULL",
        done="SELECT count(*) FROM pgqrs_messages AS m WHERE m.archived_at IS NOT NULL",
        best="two consumers, dequeue and archive 1000 at once",
        backlog=(1_000, 100_000),
    ),
    Peer(
        name="procrastinate",
        program="with_procrastinate.py",
        package="procrastinate",
        left="SELECT count(*) FROM procrastinate_jobs AS j WHERE j.status <> 'succeeded'",
        done="SELECT count(*) FROM procrastinate_jobs AS j WHERE j.status = 'succeeded'",
        best="concurrency 50, 20 connections",
        backlog=(500, 2_000),
        bulk=20_000,
    ),
    Peer(
        name="awa",
        program="with_awa.py",
        package="awa-pg",
        left="SELECT (SELECT count(*) FROM awa.ready_entries)"
        " - (SELECT coalesce(sum(b.completed_count), 0)::bigint FROM awa.receipt_completion_batches AS b)",
        done="SELECT (SELECT coalesce(sum(b.completed_count), 0)::bigint FROM awa.receipt_completion_batches AS b)"
        " + (SELECT coalesce(sum(l.pruned_completed_count), 0)::bigint FROM awa.queue_lanes AS l)",
        best="200 workers",
        backlog=(500, 10_000),
    ),
    Peer(
        name="oban-py",
        program="with_oban.py",
        package="oban",
        left="SELECT count(*) FROM oban_jobs AS j WHERE j.state <> 'completed'",
        done="SELECT count(*) FROM oban_jobs AS j WHERE j.state = 'completed'",
        best="limit 200, 20 connections",
        backlog=(2_000, 10_000),
        bulk=5_000,
        python=(3, 12),
    ),
]
