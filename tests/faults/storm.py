"""The storm: faults drawn from a seed, several at once, each of which ends after a while."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg

from tests.daemon.process import Daemon
from tests.faults.logs import Disturbances
from tests.faults.system import System
from tests.sql.queue import Queue

# Locks last 1.5 s: a worker that is frozen for so long has lost all of its locks.
FROZEN_S = (2.0, 3.5)
CUT_S = (0.3, 3.0)
AWAY_S = (0.0, 0.8)
# A drain of 1.5 s, 2 s for cancelled handlers, 10 s for the last settles, and the delay of a busy machine.
STOPPED_WITHIN_S = 60


@dataclass
class Action:
    """A fault in progress."""

    name: str
    began_at: float
    ends_at: float
    end: ExitStack


@dataclass
class Storm:
    """Applies faults to a system.

    Attributes:
        happened: the events: (wall clock, what).
        crashes: when the server crashed, by the wall clock.
        problems: errors of daemons.
        disturbances: when faults touched connections.
    """

    system: System
    seed: str
    happened: list[tuple[float, str]] = field(default_factory=list)
    crashes: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    disturbances: Disturbances = field(default_factory=Disturbances)
    busy: set[object] = field(default_factory=set)
    drains: list[threading.Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = Random(f"{self.seed} storm")
        self.going: list[Action] = []

    @property
    def faults(self) -> dict[str, tuple[Callable[[], AbstractContextManager[None]], tuple[float, float]]]:
        """Every fault and how long it lasts."""
        return {
            "kill a daemon": (self.killed, (0.0, 1.0)),
            "freeze a daemon": (self.frozen, FROZEN_S),
            "drain a daemon": (self.drained, (0.0, 0.5)),
            "terminate backends": (self.terminated, (0.0, 0.0)),
            "terminate listeners": (self.listeners_terminated, (0.0, 0.0)),
            "restart the server": (self.stopped, AWAY_S),
            "crash the server": (self.crashed, AWAY_S),
            "kill the server": (self.shot, AWAY_S),
            "reset connections": (self.reset, (0.0, 0.0)),
            "half-open connections": (self.half_open, CUT_S),
            "stall connections": (self.stalled, CUT_S),
            "swallow answers": (self.swallowed, CUT_S),
            "swallow answers of publishers": (self.swallowed_of_publishers, (0.1, 1.0)),
            "vacuum": (self.vacuumed, (0.0, 0.0)),
            "reset publishers": (self.reset_publishers, (0.0, 0.0)),
            "stall publishers": (self.stalled_publishers, CUT_S),
            "switch notifications off": (self.notify_off, CUT_S),
            "hold a snapshot": (self.held, (1.0, 4.0)),
            "two ticks at once": (self.ticked, (0.0, 0.0)),
            "lock the rows of a topic": (self.rows_locked, (0.1, 1.0)),
            "kill the web server": (self.web_killed, (0.0, 1.0)),
        }

    def run(self, faults: list[str], pause_s: tuple[float, float], enough: Callable[[], bool] = lambda: False) -> None:
        """Run these faults one after the other, each as soon as possible; return when all have ended.

        pause_s: the range of the pause between the starts of two faults.
        """
        waiting = list(faults)
        while waiting and not enough():
            self._end_what_is_over()
            if self._begin(waiting[0]):
                del waiting[0]
                time.sleep(self.chance.uniform(*pause_s))
            else:
                # Another fault uses what this one needs: others go first.
                waiting.append(waiting.pop(0))
                time.sleep(0.05)
        while self.going:
            self._end_what_is_over()
            time.sleep(0.02)
        for drain in self.drains:
            drain.join(2 * STOPPED_WITHIN_S)
        self.restore()

    def restore(self) -> None:
        """Remove all faults."""
        began_at = time.time()
        self.system.server.place.start()
        for proxy in (self.system.for_daemons, self.system.for_publishers):
            proxy.flow()
            proxy.cut()
        for daemon in self.system.daemons:
            daemon.send(signal.SIGCONT)
        self.disturbances.times.append((began_at, time.time()))
        self.note("all faults are removed")

    def note(self, what: str) -> None:
        """Record an event."""
        self.happened.append((time.time(), what))

    def events(self) -> str:
        """Return the events, for the analysis of a failure."""
        began = self.happened[0][0] if self.happened else 0
        return "\n".join(f"{at - began:8.3f} {what}" for at, what in self.happened)

    def _begin(self, name: str) -> bool:
        fault, lasts = self.faults[name]
        began_at, end = time.time(), ExitStack()
        try:
            end.enter_context(fault())
        except Busy:
            return False
        except psycopg.OperationalError:
            # The server is stopped, so nothing of it can be cut or held.
            self.note(f"{name}: not now")
            return True
        self.going.append(Action(name, began_at, time.monotonic() + self.chance.uniform(*lasts), end))
        return True

    def _end_what_is_over(self) -> None:
        for action in [each for each in self.going if each.ends_at <= time.monotonic()]:
            self.going.remove(action)
            with suppress(psycopg.OperationalError):
                action.end.close()
            self.note(f"{action.name}: over")
            if action.name not in SPARE_CONNECTIONS:
                self.disturbances.times.append((action.began_at, time.time()))

    @contextmanager
    def _taking(self, thing: object) -> Iterator[None]:
        """Reserve a target: no other fault may use it at the same time."""
        if thing in self.busy:
            raise Busy
        self.busy.add(thing)
        try:
            yield
        finally:
            self.busy.discard(thing)

    # Daemons

    @contextmanager
    def _some_daemon(self) -> Iterator[tuple[int, Daemon]]:
        slot = self.chance.randrange(len(self.system.daemons))
        with self._taking(slot):
            daemon = self.system.daemons[slot]
            if not daemon.alive:
                self.problems.append(f"daemon {daemon.pid} ended by itself with {daemon.exit_code()}: {_tail(daemon)}")
                self.system.replace(slot)
                daemon = self.system.daemons[slot]
            yield slot, daemon

    @contextmanager
    def killed(self) -> Iterator[None]:
        """Kill -9 a daemon; another one starts later."""
        with self._some_daemon() as (slot, daemon):
            self.note(f"kill daemon {daemon.pid}")
            daemon.kill()
            yield
            self.system.replace(slot)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """A daemon is stopped for longer than its locks."""
        with self._some_daemon() as (_, daemon):
            self.note(f"freeze daemon {daemon.pid}")
            daemon.send(signal.SIGSTOP)
            yield
            daemon.send(signal.SIGCONT)

    @contextmanager
    def drained(self) -> Iterator[None]:
        """SIGTERM; the next one starts when this one has ended, in the background."""
        with ExitStack() as taken:
            slot, daemon = taken.enter_context(self._some_daemon())
            self.note(f"drain daemon {daemon.pid}")
            daemon.send(signal.SIGTERM)
            keep = taken.pop_all()
        self.drains.append(threading.Thread(target=self._replace_when_ended, args=(slot, daemon, keep), daemon=True))
        self.drains[-1].start()
        yield

    def _replace_when_ended(self, slot: int, daemon: Daemon, taken: ExitStack) -> None:
        with taken:
            try:
                code: object = daemon.exit_code(STOPPED_WITHIN_S)
            except Exception as error:  # noqa: BLE001 - reported with the findings
                code = repr(error)
                daemon.kill()
            self.note(f"daemon {daemon.pid} drained: {code}")
            # A process that has hardly started may end like any process.
            if code != 0 and daemon.events("daemon.started"):
                self.problems.append(f"daemon {daemon.pid} was asked to drain and ended with {code}: {_tail(daemon)}")
            self.system.replace(slot)

    # The server

    @contextmanager
    def _away(self, how: str, *, crashes: bool) -> Iterator[None]:
        with self._taking("server"):
            self.note(f"{how} the server")
            getattr(self.system.server.place, how)()
            if crashes:
                self.crashes.append(time.time())
            yield
            self.system.server.place.start()

    def stopped(self) -> AbstractContextManager[None]:
        """A fast restart."""
        return self._away("stop", crashes=False)

    def crashed(self) -> AbstractContextManager[None]:
        """An immediate restart, which ends in recovery."""
        return self._away("crash", crashes=True)

    def shot(self) -> AbstractContextManager[None]:
        """Kill -9 of its first process."""
        return self._away("kill", crashes=True)

    @contextmanager
    def _asking(self) -> Iterator[Queue]:
        with self.system.queue() as queue:
            yield queue

    def _terminate(self, pattern: str, share: float) -> None:
        with self._asking() as queue:
            ended = queue.rows(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND application_name LIKE %s AND random() < %s",
                [pattern, share],
            )
            self.note(f"terminate {len(ended)} backends like {pattern}")

    @contextmanager
    def terminated(self) -> Iterator[None]:
        """pg_terminate_backend of randomly chosen connections.

        They are claim loops, heartbeats, handlers' transactions and all others.
        """
        self._terminate("pgrouse%", 0.5)
        yield

    @contextmanager
    def listeners_terminated(self) -> Iterator[None]:
        """The same of the listeners: notifications in transit to them are lost."""
        self._terminate("pgrouse listener%", 1)
        yield

    @contextmanager
    def notify_off(self) -> Iterator[None]:
        """No publish notifies."""
        with self._taking("notify"):
            self._set_notify("off")
            yield
            self._set_notify("auto")

    def _set_notify(self, notify: str) -> None:
        with self._asking() as queue:
            queue.conn.execute("UPDATE messages.topic SET notify = %s WHERE topic = '*'", [notify])
            self.note(f"notify {notify}")

    @contextmanager
    def held(self) -> Iterator[None]:
        """A held snapshot, so that vacuum removes no dead row, and a held transaction id, so that no horizon moves."""
        with self.system.queue() as queue:
            queue.conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            queue.value("SELECT pg_current_xact_id()")
            self.note("hold a snapshot")
            yield

    @contextmanager
    def ticked(self) -> Iterator[None]:
        """pg_cron, a person and the daemons run the maintenance at the same time."""
        self.note("two ticks at once")
        threads = [threading.Thread(target=self._tick, args=(caller,), daemon=True) for caller in ("cron", "hand")]
        for thread in threads:
            thread.start()
        yield

    @contextmanager
    def vacuumed(self) -> Iterator[None]:
        """Dead rows are removed, and their space is used again."""
        self.note("vacuum")
        threading.Thread(target=self._vacuum, daemon=True).start()
        yield

    def _vacuum(self) -> None:
        with suppress(psycopg.OperationalError), self._asking() as queue:
            queue.conn.execute("VACUUM (ANALYZE) messages.message, messages.low_water, messages.sleeper, messages.rate")

    def _tick(self, caller: str) -> None:
        with suppress(psycopg.OperationalError), self._asking() as queue:
            done = queue.rows("SELECT * FROM messages.tick(%s)", [caller])
            queue.call("expire_locks")
            queue.call("raise_low_water", "0 s")
            self.note(f"tick by {caller}: {', '.join(f'{row.task} {row.count}' for row in done if row.count)}")

    @contextmanager
    def rows_locked(self) -> Iterator[None]:
        """A session locks rows of a topic, so that no other can."""
        with self.system.queue() as queue:
            queue.conn.execute("BEGIN")
            rows = queue.rows("SELECT FROM messages.message WHERE topic = 'often' LIMIT 50 FOR UPDATE SKIP LOCKED")
            self.note(f"lock {len(rows)} rows")
            yield

    @contextmanager
    def web_killed(self) -> Iterator[None]:
        """Kill -9 the web server; another one starts later."""
        with self._taking("web"):
            self.note("kill the web server")
            self.system.web.kill()
            yield
            self.system.web.start()

    # The network

    @contextmanager
    def reset(self) -> Iterator[None]:
        """All connections of the daemons are reset, with everything in transit."""
        self.note("reset the daemons' connections")
        self.system.for_daemons.cut()
        yield

    @contextmanager
    def half_open(self) -> Iterator[None]:
        """Neither side receives anything from the other.

        The server keeps the locks until the connections are cut.
        """
        with self._taking("network"):
            self.note("half-open connections of the daemons")
            self.system.for_daemons.go_dead()
            yield
            self.system.for_daemons.cut()

    @contextmanager
    def swallowed(self) -> Iterator[None]:
        """The server does what the daemons request, and its answers are lost."""
        with self._taking("network"):
            self.note("swallow the answers to the daemons")
            self.system.for_daemons.swallow_answers()
            yield
            self.system.for_daemons.cut()

    @contextmanager
    def swallowed_of_publishers(self) -> Iterator[None]:
        """The same for publishers."""
        with self._taking("publishers"):
            self.note("swallow the answers to the publishers")
            self.system.for_publishers.swallow_answers()
            yield
            self.system.for_publishers.cut()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Everything arrives late."""
        with self._taking("network"):
            self.note("stall the daemons' connections")
            self.system.for_daemons.stall()
            yield
            self.system.for_daemons.flow()

    @contextmanager
    def reset_publishers(self) -> Iterator[None]:
        """Publishers do not learn whether they have committed."""
        self.note("reset the publishers' connections")
        self.system.for_publishers.cut()
        yield

    @contextmanager
    def stalled_publishers(self) -> Iterator[None]:
        """Transactions of publishers stay open, or commit late."""
        with self._taking("publishers"):
            self.note("stall the publishers' connections")
            self.system.for_publishers.stall()
            yield
            self.system.for_publishers.flow()


OF_DAEMONS = {"kill a daemon", "freeze a daemon", "drain a daemon"}
OF_THE_WEB = {"kill the web server"}
SPARE_CONNECTIONS = {
    "drain a daemon", "vacuum", "switch notifications off", "hold a snapshot", "two ticks at once",
    "lock the rows of a topic",
}  # fmt: skip


class Busy(Exception):
    """Another fault uses what this one needs."""


def _tail(daemon: Daemon) -> Any:
    return daemon.log.read_text()[-2000:]
