"""The comparisons of pgrouse with its peers: all in turn on the same server, each checked by counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from bench import drain
from bench.figure import Figure, Report, percentile
from bench.latency import EVERY_S, Delay
from bench.peers.field import Field, Rounds
from bench.peers.peer import BEST, DEFAULTS, NOTIFIED, PGROUSE
from bench.peers.run import CHUNK, Entrant, bulk, copied, drained, trickled
from bench.postgres import Database, Postgres
from bench.usage import Machine

PLAIN_SQL = ("plain SQL", "")
COPY = ("COPY into pgrouse's table", f"{CHUNK:,} rows a transaction")
COPY_AT_ONCE = ("COPY into pgrouse's table", "all in one")
AT_ONCE = ("pgrouse", "all in one call")
LOAD_S = 8.0
LOAD_EVERY_S = 0.001
LOAD_PUBLISHERS = 4


def drains(postgres: Postgres, machine: Machine, among: Field, rounds: int, share: float = 1) -> Report:
    """Drain a backlog with each peer at its defaults and at its best, and with plain SQL.

    share: the share of the full backlogs.
    """
    values = Rounds(among, rounds)
    with ExitStack() as ends:
        backlogs = [
            (entrant, settings, backlog)
            for entrant in among.entrants
            for settings, messages in zip((DEFAULTS, BEST), _sizes(entrant, share), strict=True)
            if (backlog := among.enter(ends, entrant, _backlog(postgres, entrant, settings, messages)))
        ]
        for _ in range(rounds):
            limit = partial(_by_plain_sql, postgres, machine, backlogs[0][2], int(PGROUSE.backlog[0] * share))
            values.attempt(among.entrants[0], PLAIN_SQL, limit)
            for entrant, settings, backlog in backlogs:
                run = partial(drained, postgres, machine, entrant, backlog, settings)
                values.attempt(entrant, (entrant.peer.name, settings), run)
    return _report_of_drains(values, among, share)


def _sizes(entrant: Entrant, share: float) -> list[int]:
    return [max(2, int(messages * share)) for messages in entrant.peer.backlog]


@contextmanager
def _backlog(postgres: Postgres, entrant: Entrant, settings: str, messages: int) -> Iterator[Database]:
    """Publish a backlog, and leave its tables as a vacuum would."""
    with postgres.database(f"backlog_{entrant.peer.name}_{settings}", with_schema=entrant.peer is PGROUSE) as database:
        if entrant.peer is not PGROUSE:
            entrant.call(database, "install")
        entrant.publish(database, messages)
        with database.connect() as conn:
            conn.execute("VACUUM ANALYZE")
        yield database


def _by_plain_sql(postgres: Postgres, machine: Machine, backlog: Database, messages: int) -> float:
    return max(drain.by_plain_sql(postgres, machine, backlog, messages, clients).rate for clients in (1, 2))


def _report_of_drains(values: Rounds, among: Field, share: float) -> Report:
    complete = values.complete()
    limit = Figure(PLAIN_SQL[0], "messages/s", complete.pop(PLAIN_SQL))
    figures = [
        Figure(", ".join(key), "messages/s", rates, limit)
        for key, rates in sorted(complete.items(), key=lambda item: item[0][1] == BEST)
    ]
    sizes = [f"{each.peer.name} {' and '.join(f'{n:,}' for n in _sizes(each, share))}" for each in among.entrants]
    best = [f"{each.peer.name}: {each.peer.best}" for each in among.entrants]
    return Report(
        "peers-drain",
        "A backlog of messages with a no-op handler, by one process each: "
        "the first start of a handler until nothing is left.",
        [limit, *figures],
        [
            *among.notes,
            f"Messages at the defaults and at the best: {'; '.join(sizes)}.",
            f"Best: {'; '.join(best)}.",
            "These keep of a message: graphile-worker nothing, pgqueuer a line of its log, the others all of it.",
        ],
    )


def wakes(postgres: Postgres, machine: Machine, among: Field, rounds: int, messages: int = 60) -> Report:
    """Publish one message at a time to idle workers."""
    values = Rounds(among, rounds)
    for _ in range(rounds):
        for entrant in among.entrants:
            run = partial(
                *(trickled, postgres, machine, entrant),
                settings=NOTIFIED,
                messages=messages,
                every=EVERY_S,
                publishers=1,
            )
            values.attempt(entrant, (entrant.peer.name, ""), run)
    return Report(
        "peers-wake",
        f"{messages} messages in each of {rounds} rounds to an idle worker, one each {EVERY_S * 1000:.0f} ms, "
        "at its defaults; pg-boss and pgmq with their notifications switched on.",
        _delays(values, ("from the call", "from the return")),
        among.notes,
    )


def loads(postgres: Postgres, machine: Machine, among: Field, rounds: int, seconds: float = LOAD_S) -> Report:
    """Publish a thousand messages a second over four connections."""
    values = Rounds(among, rounds)
    for _ in range(rounds):
        for entrant in among.entrants:
            # The best settings of pgmq use no notifications, so here the settings with notifications are used.
            settings = NOTIFIED if entrant.peer.name == "pgmq" else BEST
            run = partial(
                *(trickled, postgres, machine, entrant),
                settings=settings,
                messages=int(seconds / LOAD_EVERY_S),
                every=LOAD_EVERY_S,
                publishers=LOAD_PUBLISHERS,
            )
            values.attempt(entrant, (entrant.peer.name, ""), run)
    return Report(
        "peers-load",
        f"A thousand messages a second over {LOAD_PUBLISHERS} connections for {seconds:g} s, at the best settings.",
        [*_delays(values, ("from the call",)), *_cores(values)],
        among.notes,
    )


def _delays(values: Rounds, kinds: tuple[str, ...]) -> list[Figure]:
    return [
        Figure(f"{key[0]}, {kind}, {name}", "ms", [percentile(_times(kind, each.delays), share) for each in rounds])
        for kind in kinds
        for name, share in (("p50", 0.5), ("p99", 0.99))
        for key, rounds in values.complete().items()
    ]


def _cores(values: Rounds) -> list[Figure]:
    complete = values.complete().items()
    return [
        *(
            Figure(f"{key[0]}, CPU of the server", "cores", [each.server_cores for each in rounds])
            for key, rounds in complete
        ),
        *(
            Figure(f"{key[0]}, CPU of the worker", "cores", [each.worker_cores for each in rounds])
            for key, rounds in complete
        ),
    ]


def _times(kind: str, each: list[Delay]) -> list[float]:
    return [delay.from_call if kind == "from the call" else delay.from_return for delay in each]


def publishes(postgres: Postgres, machine: Machine, among: Field, rounds: int, share: float = 1) -> Report:
    """Publish in bulk with each peer, and COPY into pgrouse's table; share: the share of the full number of rows."""
    values = Rounds(among, rounds)
    rows = int(PGROUSE.bulk * share)
    with ExitStack() as ends:
        templates = [
            (entrant, template)
            for entrant in among.entrants
            if (template := among.enter(ends, entrant, entrant.database(postgres)))
        ]
        pgrouse, empty = templates[0]
        for _ in range(rounds):
            for key, chunk in ((COPY, CHUNK), (COPY_AT_ONCE, rows)):
                values.attempt(pgrouse, key, partial(copied, postgres, machine, empty, rows, chunk))
            values.attempt(pgrouse, AT_ONCE, partial(bulk, postgres, machine, pgrouse, empty, rows, rows))
            for entrant, template in templates:
                run = partial(bulk, postgres, machine, entrant, template, int(entrant.peer.bulk * share))
                values.attempt(entrant, (entrant.peer.name, f"{CHUNK:,} a call"), run)
    return _report_of_publishes(values, among, rows)


def _report_of_publishes(values: Rounds, among: Field, rows: int) -> Report:
    complete = values.complete()
    copy, at_once = (Figure(", ".join(key), "rows/s", complete.pop(key)) for key in (COPY, COPY_AT_ONCE))
    rest = [
        Figure(", ".join(key), "rows/s", rates, at_once if key == AT_ONCE else copy) for key, rates in complete.items()
    ]
    return Report(
        "peers-publish",
        f"{rows:,} messages in bulk by one connection, {CHUNK:,} a call and a transaction, and all in one; "
        "slow peers publish fewer.",
        [copy, at_once, *rest],
        among.notes,
    )
