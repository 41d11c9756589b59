"""Measures how fast one daemon, and eight of them, process a backlog, compared with plain SQL on the same rows."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from bench import pgbench, program, usage
from bench.figure import Figure, Report, Target
from bench.postgres import Database, Postgres
from bench.usage import Machine

CLIENTS = (1, 2, 4)
BATCH = 1000
CONCURRENCY = 1000
WITHIN_S = 600
# The planner has no useful statistics for a queue: these settings make it use the indexes, as those of the functions
# do.
SETTINGS = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off"}
DAEMON = f"one daemon process, concurrency = {CONCURRENCY}"
DEFAULTS = "one daemon process, defaults"
PROCESSES = 8
FLEET_DEFAULTS = f"{PROCESSES} daemon processes, defaults"
FLEET = f"{PROCESSES} daemon processes, concurrency = {CONCURRENCY} each"


@dataclass(frozen=True)
class Run:
    """One processed backlog.

    Attributes:
        rate: messages per second.
        cpu_us: CPU of server and clients together, per message, in microseconds; NaN when the server is on another
            machine.
        client_cpu_us: CPU of the clients alone.
        client_mib: the maximum memory of the clients; 0 for plain SQL.
    """

    rate: float
    cpu_us: float
    client_cpu_us: float
    client_mib: float = 0


def measure(postgres: Postgres, machine: Machine, rounds: int, messages: int) -> Report:
    """Drain the same backlog with plain SQL and with a daemon, in turn."""
    runs: dict[str, list[Run]] = defaultdict(list)
    with postgres.database("backlog") as backlog:
        publish(backlog, messages)
        for _ in range(rounds):
            for clients in CLIENTS:
                runs[plain_sql_name(clients)].append(by_plain_sql(postgres, machine, backlog, messages, clients))
            runs[DAEMON].append(by_daemon(postgres, machine, backlog, messages))
            runs[DEFAULTS].append(by_daemon(postgres, machine, backlog, messages, concurrency=None))
            runs[FLEET_DEFAULTS].append(
                by_daemon(postgres, machine, backlog, messages, concurrency=None, processes=PROCESSES)
            )
            runs[FLEET].append(by_daemon(postgres, machine, backlog, messages, processes=PROCESSES))
    return _report(runs, messages, postgres.is_private)


def publish(database: Database, messages: int) -> None:
    """Fill the queue, and leave its tables as a vacuum would."""
    with database.connect() as conn:
        conn.execute(
            "INSERT INTO messages.message (topic, payload)"
            " SELECT 'noop', jsonb_build_object('n', n) FROM generate_series(1, %s) AS n",
            [messages],
        )
        conn.execute("VACUUM ANALYZE messages.message")


def by_plain_sql(postgres: Postgres, machine: Machine, backlog: Database, messages: int, clients: int) -> Run:
    """Claim and move a copy of a backlog with plain SQL, at the limit of the server."""
    with postgres.database("plain_sql", backlog) as database:
        postgres.checkpoint()
        machine.wait_until_quiet()
        server, client = postgres.cpu_s(), usage.children_cpu_s()
        pgbench.run_times(
            postgres, database, "claim_and_move.sql", clients=clients, times=messages // BATCH, settings=SETTINGS
        )
        server, client = postgres.cpu_s() - server, usage.children_cpu_s() - client
        return Run(_rate(database, messages), (server + client) / messages * 1e6, client / messages * 1e6)


def by_daemon(
    postgres: Postgres,
    machine: Machine,
    backlog: Database,
    messages: int,
    *,
    concurrency: int | None = CONCURRENCY,
    noop: str = "nothing",
    processes: int = 1,
) -> Run:
    """Process a copy of a backlog with one daemon and the handler `noop`. concurrency: None = all defaults.

    Several processes begin at the same time, once all of them have started: the topic is paused until then.
    """
    with postgres.database("drain", backlog) as database:
        if processes > 1:
            _call(database, "SELECT messages.pause('noop')")
        postgres.checkpoint()
        machine.wait_until_quiet()
        with program.daemon(database, concurrency=concurrency, noop=noop, processes=processes) as process:
            program.wait_until_registered(database, processes)
            clients = usage.family_pids(process.pid)
            server, client = postgres.cpu_s(), usage.cpu_s(*clients)
            if processes > 1:
                _call(database, "SELECT messages.resume('noop')")
            wait_until_drained(database)
            server, client = postgres.cpu_s() - server, usage.cpu_s(*clients) - client
            memory = sum(map(usage.peak_rss_mib, clients))
        return Run(_rate(database, messages), (server + client) / messages * 1e6, client / messages * 1e6, memory)


def _call(database: Database, statement: str) -> None:
    with database.connect() as conn:
        conn.execute(statement.encode())


def wait_until_drained(database: Database) -> None:
    """Check for the last message first.

    That reads one entry of an index, but finding out that a table is empty reads the whole table.
    """
    with database.connect() as conn:
        last = conn.execute("SELECT max(id) FROM messages.message").fetchone()

        def is_drained() -> bool:
            if conn.execute("SELECT FROM messages.message AS m WHERE m.id = %s", last).rowcount:
                return False
            return conn.execute("SELECT FROM messages.message LIMIT 1").rowcount == 0

        program.wait_until(is_drained, WITHIN_S, "the drain")


def _rate(database: Database, messages: int) -> float:
    """Check the counts; return the messages per second from the first claim to the last settle, on the server.

    The times are those of the server's clock.
    """
    with database.connect() as conn:
        row = conn.execute(
            "SELECT count(DISTINCT a.id), count(*), extract(epoch FROM max(a.archived_at) - min(a.locked_at))::float8"
            " FROM messages.message_archive AS a WHERE a.result = 'success'"
        ).fetchone()
    if row is None or row[:2] != (messages, messages):
        raise SystemExit(f"{messages} messages were published, but the archive has {row}")
    return messages / float(row[2])


def _report(runs: dict[str, list[Run]], messages: int, is_private: bool) -> Report:
    plain = [_rates(runs, plain_sql_name(clients)) for clients in CLIENTS]
    limit = max(plain, key=lambda figure: figure.median)
    figures = [
        *plain,
        replace(_rates(runs, DEFAULTS), limit=limit, target=Target(0.6, at_least=True)),
        replace(_rates(runs, DAEMON), limit=limit, target=Target(0.85, at_least=True)),
        replace(_rates(runs, FLEET_DEFAULTS), limit=limit),
        replace(_rates(runs, FLEET), limit=limit),
    ]
    if is_private:
        cpu = _cpu(runs, limit.what)
        figures += [cpu, *(replace(_cpu(runs, name), limit=cpu) for name in (DAEMON, FLEET_DEFAULTS, FLEET))]
    figures += [
        Figure("the daemon's own CPU", "µs/message", [run.client_cpu_us for run in runs[DAEMON]]),
        Figure("the daemon's memory at most", "MiB", [run.client_mib for run in runs[DAEMON]]),
    ]
    return Report(
        "drain",
        f"{messages:,} messages with a no-op async handler, archive kept, durable; "
        f"plain SQL claims {BATCH} and moves them.",
        figures,
        ["CPU of all: server and clients together. Others who use the machine spoil the rates more than the CPU."],
    )


def _rates(runs: dict[str, list[Run]], name: str) -> Figure:
    return Figure(name, "messages/s", [run.rate for run in runs[name]])


def _cpu(runs: dict[str, list[Run]], name: str) -> Figure:
    return Figure(f"{name}, CPU of all", "µs/message", [run.cpu_us for run in runs[name]])


def plain_sql_name(clients: int) -> str:
    """Return the name of the figure of plain SQL."""
    return f"plain SQL, {clients} client{'s' if clients > 1 else ''}"
