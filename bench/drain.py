"""How fast one daemon works off a backlog, against what plain SQL does with the same rows."""

from __future__ import annotations

import statistics
from collections import defaultdict

from bench import pgbench, program, usage
from bench.figure import Figure, Report, Target
from bench.ground import Database, Ground
from bench.usage import Machine

CLIENTS = (1, 2, 4)
BATCH = 1000
CONCURRENCY = 2000  # two lanes with a full batch each
LANES = 2
WITHIN_S = 600
# The planner knows nothing of a queue whose rows come and go: these keep it to the indexes, as they do in the functions of the schema.
SETTINGS = {"enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off", "jit": "off"}


def measure(ground: Ground, machine: Machine, rounds: int, messages: int) -> Report:
    """Drain the same backlog by plain SQL and by a daemon, in turn."""
    rates: dict[str, list[float]] = defaultdict(list)
    with ground.database("backlog") as backlog:
        publish(backlog, messages)
        for _ in range(rounds):
            for clients in CLIENTS:
                rates[_name(clients)].append(_by_plain_sql(ground, machine, backlog, messages, clients))
            rate, cpu_us, rss_mib = _by_daemon(ground, machine, backlog, messages)
            rates["daemon"].append(rate)
            rates["cpu"].append(cpu_us)
            rates["rss"].append(rss_mib)
    return _report(rates, messages)


def publish(database: Database, messages: int) -> None:
    """Fill the queue, and leave its tables as a vacuum would."""
    with database.connect() as conn:
        conn.execute(
            "INSERT INTO messages.message (topic, payload)"
            " SELECT 'noop', jsonb_build_object('n', n) FROM generate_series(1, %s) AS n",
            [messages],
        )
        conn.execute("VACUUM ANALYZE messages.message")


def _by_plain_sql(ground: Ground, machine: Machine, backlog: Database, messages: int, clients: int) -> float:
    with ground.database("plain_sql", backlog) as database:
        with database.connect() as conn:
            conn.execute("DROP TRIGGER dead_message ON messages.message_archive")
        ground.checkpoint()
        machine.wait_until_quiet()
        pgbench.run_times(
            ground, database, "claim_and_move.sql", clients=clients, times=messages // BATCH, settings=SETTINGS
        )
        return _rate(database, messages)


def _by_daemon(ground: Ground, machine: Machine, backlog: Database, messages: int) -> tuple[float, float, float]:
    """Return messages per second, microseconds of the daemon's CPU per message, and its largest resident memory in MiB."""
    with ground.database("drain", backlog) as database:
        ground.checkpoint()
        machine.wait_until_quiet()
        with program.daemon(database, concurrency=CONCURRENCY, lanes=LANES) as process:
            _wait_until_drained(database)
            used, rss = usage.cpu_s(process.pid), usage.peak_rss_mib(process.pid)
        return _rate(database, messages), used / messages * 1e6, rss


def _wait_until_drained(database: Database) -> None:
    """Look for the last message first: that is one entry of an index, while to see that a table is empty is to read it."""
    with database.connect() as conn:
        last = conn.execute("SELECT max(id) FROM messages.message").fetchone()

        def is_drained() -> bool:
            if conn.execute("SELECT FROM messages.message AS m WHERE m.id = %s", last).rowcount:
                return False
            return conn.execute("SELECT FROM messages.message LIMIT 1").rowcount == 0

        program.wait_until(is_drained, WITHIN_S, "the drain")


def _rate(database: Database, messages: int) -> float:
    """Return the messages per second from the first claim to the last settle, by the server's clock. The books must balance."""
    with database.connect() as conn:
        row = conn.execute(
            "SELECT count(DISTINCT a.id), count(*), extract(epoch FROM max(a.archived_at) - min(a.locked_at))::float8"
            " FROM messages.message_archive AS a WHERE a.result = 'success'"
        ).fetchone()
    if row is None or row[:2] != (messages, messages):
        raise SystemExit(f"{messages} messages were published, but the archive has {row}")
    return messages / float(row[2])


def _report(rates: dict[str, list[float]], messages: int) -> Report:
    plain = [Figure(_name(clients), "messages/s", rates[_name(clients)]) for clients in CLIENTS]
    limit = max(plain, key=lambda figure: statistics.median(figure.rounds))
    drained = Figure("one daemon process", "messages/s", rates["daemon"], limit, Target(0.5, at_least=True))
    return Report(
        "drain",
        f"{messages:,} messages with a no-op async handler, archive kept, durable; plain SQL claims {BATCH} and moves them.",
        [
            *plain,
            drained,
            Figure("daemon's CPU per message", "µs", rates["cpu"]),
            Figure("daemon's memory at most", "MiB", rates["rss"]),
        ],
    )


def _name(clients: int) -> str:
    return f"plain SQL, {clients} client{'s' if clients > 1 else ''}"
