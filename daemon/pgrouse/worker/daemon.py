"""The daemon: builds the parts, runs the loops in one TaskGroup, and stops them in order."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.metadata import version
from secrets import token_hex
from typing import TYPE_CHECKING, Any

import psycopg
import structlog

from pgrouse import events

from pgrouse.worker import child_process as child

from pgrouse.config import config

from pgrouse.worker import process_exit as departure

from pgrouse.handlers import handler

from pgrouse.client import policy_change

from pgrouse.install import schema

from pgrouse.worker import supervisor

from pgrouse.worker import systemd
from pgrouse.worker.claim_planner import Claimer, jittered
from pgrouse.worker.executor import Crew
from pgrouse.client.database import Database
from pgrouse.errors import ConfigError, ExitCode
from pgrouse.worker.in_flight import Hand
from pgrouse.handlers.handler import Handler, Mode
from pgrouse.worker.heartbeat import Heartbeat, Registration
from pgrouse.worker import loop
from pgrouse.worker.claim_loop import Lane
from pgrouse.worker.listener import Listener, Prober
from pgrouse.worker.listener import Mode as Hearing
from pgrouse.worker.maintenance import Ticker
from pgrouse.worker.watchdog import Watchdog
from pgrouse.worker.metrics_reporter import Reports
from pgrouse.worker.metrics_recorder import Meters
from pgrouse.worker.daemon_runtime import Scene
from pgrouse.worker.settle_buffer import Settler
from pgrouse.worker.wake_event import Signal, Signals
from pgrouse.worker.shutdown_signals import Stop
from pgrouse.worker.schema_cache import TopicSchemas
from pgrouse.worker.health import Parts, Vitals

if TYPE_CHECKING:
    from pgrouse.crypto.message_crypto import Seals
    from pgrouse.metrics.endpoint import Endpoint
    from pgrouse.telemetry.factory import Traced

log = structlog.get_logger()

# After the drain: how long cancelled handlers may take to end, and how long the last settles may take to arrive.
CANCEL_S = 2.0
LAST_SETTLE_S = 10.0


def run(settings: config.Config) -> int:
    """Run a daemon until it is told to stop; return its exit code. SIGHUP replaces it by a new one, with the configuration of then.

    Raises:
        ConfigError: a handler cannot be used.
        SchemaMismatch: the database has another schema.
    """
    if supervisor.is_child():
        supervisor.end_with_the_parent()
    elif settings.worker.processes > 1:
        handler.load(settings)
        # Before any process is started: a key that cannot be read is told once.
        _seals(settings)
        _tell_questions(settings)
        return supervisor.run(settings.worker.processes)
    daemon = Daemon(settings, handler.load(settings))
    if not supervisor.is_child():
        _tell_questions(settings)
    # What is cancelled at the very end may exit too: the code is known by then.
    with suppress(SystemExit), asyncio.Runner() as runner:
        code = departure.run_to_the_end(runner, daemon.run(), daemon.exited)
        departure.leave_soon(code, anew=daemon.stop.is_reload)
    if daemon.stop.is_reload:
        departure.begin_anew()
    return code


def _tell_questions(settings: config.Config) -> None:
    """Say what is allowed but surprises in the configuration, once."""
    for each in handler.questions(settings):
        log.warning(events.HANDLER_RULES_QUESTIONED, where=str(each.origin), key=each.key, reason=each.text)


class Daemon:
    """One daemon process: its parts, their start and their stop."""

    def __init__(self, settings: config.Config, handlers: dict[str, Handler]) -> None:
        self.settings, self.handlers = settings, handlers
        self.name = f"{settings.worker.name or socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
        self.db = Database(settings.database, self.name)
        self.signals = Signals()
        self.hand = Hand()
        self.meters = Meters(handlers)
        self.settler = Settler(self.signals, self.meters)
        self.seals = _seals(settings)
        self.scene = Scene(self.db, self.hand, self.meters, self.seals)
        self.schemas, self.topic_changed = TopicSchemas(), Signal()
        children = _children(settings, handlers)
        self.traced = _traced(settings, self.name)
        make_crew = Crew if self.traced is None else self.traced.crew
        self.crew = make_crew(
            handlers,
            settings.worker,
            self.hand,
            self.settler,
            self.scene,
            children,
            self._wake,
            self.schemas,
            self.seals,
        )
        self.claimer = Claimer(self.crew.room, self._poll_s, time.monotonic, settings.worker.lanes)
        self.stop = Stop(self.signals, self._may_reload)
        self.vitals = Vitals(
            settings.metrics.alive_within.total_seconds(), settings.database.connect_timeout.total_seconds()
        )
        self.endpoint = _endpoint(self)
        self._exited = False
        self.lanes: list[Lane]
        self.listener: Listener
        self.heartbeat: Heartbeat

    async def run(self) -> ExitCode:
        """Run until told to stop."""
        self.stop.install()
        self.vitals.pulse.follow(asyncio.get_running_loop())
        if self.endpoint is not None:
            self.endpoint.start()
        systemd.notify(READY=1, STATUS="waiting for the database")
        # From here on, not only at work: the database may be away for longer than systemd waits for a sign of life.
        watchdog = asyncio.create_task(loop.run(Watchdog()), name=Watchdog.name)
        if await loop.until_the_database_answers(self._check_database, self.stop):
            async with self.scene:
                await self._work()
        watchdog.cancel()
        if self.traced is not None:
            await asyncio.to_thread(self.traced.end)
        if self.endpoint is not None:
            self.endpoint.stop()
        log.info(events.DAEMON_STOPPED, worker=self.name, **self._counts())
        code = self._code()
        if self.crew.left_behind:
            departure.leave_now(code, anew=self.stop.is_reload)
        return code

    def exited(self, error: BaseException) -> None:
        """A task that a handler began has called sys.exit, or raised KeyboardInterrupt: it shall have its way, in order."""
        log.critical(events.HANDLER_EXITED, exc_info=error)
        self._exited = True
        if self.stop.by is None:
            self.stop.hear(signal.SIGTERM)

    def _code(self) -> ExitCode:
        if self._exited:
            return ExitCode.FOUND_A_PROBLEM
        return ExitCode.INTERRUPTED if self.stop.by is signal.SIGINT else ExitCode.OK

    async def _work(self) -> None:
        """Run all loops until the daemon is drained."""
        self.listener = Listener(self.db, self._rung, self._check_locks, self.topic_changed.set, self._hearing)
        self.heartbeat = Heartbeat(
            self.db,
            self.hand,
            self.crew.lose,
            self._registration(),
            self.status,
            Reports(self.meters),
            self._drain_asked,
        )
        self.heartbeat.start()
        poll_s = self.settings.worker.poll.total_seconds()
        self.vitals.parts = Parts(self.listener, self.heartbeat, self.claimer, self.crew, poll_s)
        for each in self.crew.children.values():
            asyncio.get_running_loop().add_reader(each, self.crew.hear, each)
        log.info(events.DAEMON_STARTED, worker=self.name, topics=self.crew.topics, version=version("pgrouse"))
        systemd.notify(STATUS=f"working {len(self.handlers)} topics")
        try:
            await self._run_loops()
        except* (Exception, asyncio.CancelledError) as broken:
            # A bug, or a handler that cancels all tasks: nothing is known of the state any more. What is in hand comes back when its
            # locks expire.
            log.critical(events.LOOP_BROKEN, exc_info=broken)
            departure.leave_now(ExitCode.FOUND_A_PROBLEM, anew=False)
        await self.crew.close()
        await asyncio.to_thread(self.heartbeat.stop)

    async def _run_loops(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop.run(each), name=each.name) for each in self._loops()]
            await self._drain()
            for task in tasks:
                task.cancel()

    def _loops(self) -> list[loop.Loop]:
        settings = self.settings.worker
        make_lane = Lane if self.traced is None else self.traced.lane
        self.lanes = [
            make_lane(n, self.db, self.claimer, self.settler, self.crew, self.signals.new())
            for n in range(settings.lanes)
        ]
        return [
            *self.lanes,
            self.listener,
            Prober(self.db, self.listener),
            Ticker(
                self.db, settings.tick.total_seconds(), lambda: self.settler.settled, self.schemas, self.topic_changed
            ),
            *_alert_loops(self.db, self.settings, self.name),
        ]

    async def _drain(self) -> None:
        """Wait to be told, then: claim no more, give back what was not started, let the running end, settle the last."""
        await self.stop.requested.wait()
        if self.stop.is_reload:
            systemd.reloading()
        else:
            systemd.notify(STOPPING=1, STATUS="draining")
        self.scene.stopping = self.vitals.draining = True
        self.claimer.stop()
        self.crew.hand_back_waiting()
        if not await self._until(self._nothing_runs, self.settings.worker.drain.total_seconds()):
            log.warning(events.DRAIN_TIMED_OUT, running=self.crew.running)
            self.crew.cancel_running()
            await self._until(self._nothing_runs, CANCEL_S, impatient=False)
            self.crew.abandon_running()
        # Threads that handlers have begun (asyncio.to_thread) may never end: what is left to do gets others.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        await self._until(self._all_is_settled, LAST_SETTLE_S, impatient=False)

    async def _until(self, condition: Callable[[], bool], seconds: float, *, impatient: bool = True) -> bool:
        """Wait until the condition holds, at most so long, and (if impatient) not after a second signal; return whether it does."""
        changed = self.signals.new()
        give_up_at = time.monotonic() + seconds
        while not condition():
            left = give_up_at - time.monotonic()
            if left <= 0 or (impatient and self.stop.now):
                return False
            await changed.wait(left)
        return True

    def _check_database(self) -> None:
        with self.db.starting() as conn:
            schema.check(conn)
            self._apply_policies(conn)
            self.schemas.read_first(conn)
            if (
                conn.execute(
                    "SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'pg_cron'"
                ).fetchone()
                is None
            ):
                log.info(events.PG_CRON_ABSENT, meaning="locks expire only while a daemon runs")

    def _apply_policies(self, conn: psycopg.Connection) -> None:
        """Write the file's policies into the database if it says so; else say what is not as the file has it."""
        if self.settings.database.apply_topics == "run":
            for change in policy_change.apply(conn, self.settings.policies):
                log.info(events.POLICY_CHANGED, topic=change.topic, change=str(change))
            return
        for change in policy_change.differences(conn, self.settings.policies):
            log.warning(
                events.POLICY_NOT_APPLIED,
                topic=change.topic,
                change=str(change),
                mend="run `pgrouse topic apply`, or set database.apply_topics",
            )

    def _wake(self) -> None:
        self.claimer.wake()
        self.signals.set()

    def _rung(self) -> None:
        self.claimer.rung()
        self.signals.set()

    def _drain_asked(self) -> None:
        """Stop in order, since somebody asked for it in the database; of several processes under one supervisor all do, or it would start this one anew."""
        if supervisor.is_child():
            os.kill(os.getppid(), signal.SIGTERM)
        else:
            self.stop.hear(signal.SIGTERM)

    def _check_locks(self) -> None:
        self.heartbeat.poke()

    def _hearing(self, hears: bool) -> None:
        if not hears:
            for lane in self.lanes:
                lane.doubt()
        self.claimer.listen(hears)
        self.signals.set()

    def _poll_s(self) -> float:
        settings = self.settings.worker
        listening = self.listener.mode is Hearing.LISTENING
        return jittered((settings.poll if listening else settings.degraded_poll).total_seconds())

    def _all_is_settled(self) -> bool:
        return self.settler.idle and not any(lane.claims for lane in self.lanes)

    def _nothing_runs(self) -> bool:
        return not self.crew.running

    async def _may_reload(self) -> bool:
        """Let a new interpreter try the configuration of now: this one has long imported the handlers, as they were then."""
        environ = {**os.environ, "PGROUSE_CONFIG": str(self.settings.path)} if self.settings.path else None
        check = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pgrouse", "config", "check", stdout=DEVNULL, stderr=PIPE, env=environ
        )
        _, said = await check.communicate()
        if check.returncode:
            log.warning(events.DAEMON_RELOAD_REFUSED, reason=said.decode(errors="replace").strip())
        return not check.returncode

    def _registration(self) -> Registration:
        settings = self.settings.worker
        return Registration(
            self.name, socket.gethostname(), os.getpid(), version("pgrouse"), self.crew.topics, settings.concurrency
        )

    def status(self) -> dict[str, Any]:
        """Say how it stands, for the registry."""
        return {
            "listener": self.listener.mode.value,
            "claimer": self.claimer.state.value,
            "running": self.crew.running,
            "waiting": self.crew.not_begun,
            "in_hand": len(self.hand),
            **self._counts(),
        }

    def _counts(self) -> dict[str, int]:
        counts = {kind.value: count for kind, count in self.settler.counts.items() if count}
        return {**counts, "lost": self.settler.lost} if self.settler.lost else counts


def _children(settings: config.Config, handlers: dict[str, Handler]) -> dict[str, child.Children]:
    return {
        topic: child.Children(
            topic,
            settings.topics[topic],
            settings.handlers,
            each.concurrency or handler.CHILDREN,
            settings.otel,
            # What a child gets is decrypted already: it needs no key.
            without=tuple(key.env for key in settings.crypto.keys.values() if key.env),
        )
        for topic, each in handlers.items()
        if each.mode is Mode.PROCESS
    }


def _alert_loops(db: Database, settings: config.Config, holder: str) -> list[loop.Loop]:
    if not settings.alerts.to:
        return []
    from pgrouse.alerts import delivery as alerts  # noqa: PLC0415 - only where there are sinks

    return alerts.loops(db, settings.alerts, holder, settings.web.url)


def _seals(settings: config.Config) -> Seals | None:
    if settings.crypto.current is None:
        return None
    from pgrouse.crypto.keys import cipher_of  # noqa: PLC0415 - only where there are keys
    from pgrouse.crypto.message_crypto import Seals  # noqa: PLC0415

    cipher = cipher_of(settings)
    return None if cipher is None else Seals(cipher, settings.crypto)


def _traced(settings: config.Config, worker: str) -> Traced | None:
    if not settings.otel.enabled:
        return None
    from pgrouse.telemetry.factory import Traced  # noqa: PLC0415 - only where it is wanted

    return Traced(settings.otel, worker)


def _endpoint(daemon: Daemon) -> Endpoint | None:
    listen = daemon.settings.metrics.listen
    if listen is None:
        return None
    try:
        from pgrouse.metrics import endpoint  # noqa: PLC0415 - only where it is wanted
        from pgrouse.metrics.collector import registry_of  # noqa: PLC0415
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise ConfigError("metrics.listen needs prometheus_client: pip install 'pgrouse[metrics]'") from error
    host, _, port = listen.rpartition(":")
    # Of several processes each has an endpoint of its own, one port after the other.
    place = host.strip("[]"), int(port) + (supervisor.number() if int(port) else 0)
    return endpoint.Endpoint(place, lambda: registry_of(daemon), daemon.vitals)
