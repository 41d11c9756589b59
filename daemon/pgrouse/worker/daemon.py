"""The daemon: builds its parts, runs the loops in one TaskGroup, and stops them in order."""

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
from pgrouse.alerts.delivery import delivery_loops
from pgrouse.backoff import jittered
from pgrouse.client import policy_change
from pgrouse.client.database import Database
from pgrouse.config import config
from pgrouse.crypto.configured_cipher import require_cipher
from pgrouse.errors import ConfigError, ExitCode
from pgrouse.handlers import loader
from pgrouse.handlers.encryption import Encryption, NoEncryption
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.install import schema
from pgrouse.process import loop, systemd
from pgrouse.process.shutdown_signals import ShutdownSignals
from pgrouse.process.wake_event import WakeEvent, WakeEvents
from pgrouse.process.watchdog import Watchdog
from pgrouse.worker import child_process, supervisor
from pgrouse.worker import process_exit as departure
from pgrouse.worker.claim_loop import ClaimLoop
from pgrouse.worker.claim_planner import ClaimPlanner
from pgrouse.worker.daemon_runtime import DaemonRuntime
from pgrouse.worker.executor import HandlerExecutor
from pgrouse.worker.health import DaemonParts, HealthProbe
from pgrouse.worker.heartbeat import Heartbeat, Registration
from pgrouse.worker.in_flight import InFlight
from pgrouse.worker.listener import Listener, ListenerMode, Prober
from pgrouse.worker.maintenance import MaintenanceLoop
from pgrouse.worker.metrics_recorder import MetricsRecorder
from pgrouse.worker.metrics_reporter import MetricsReporter
from pgrouse.worker.observer import NO_OBSERVER, Observer
from pgrouse.worker.schema_cache import SchemaCache
from pgrouse.worker.settle_buffer import SettleBuffer

if TYPE_CHECKING:
    from pgrouse.metrics.endpoint import MetricsEndpoint

log = structlog.get_logger()

# After the shutdown timeout: how long cancelled handlers may take to end, and how long the last settles may take.
CANCEL_S = 2.0
LAST_SETTLE_S = 10.0


def run(settings: config.Config) -> int:
    """Run a daemon until it is asked to stop; return its exit code. SIGHUP replaces it by a new one with the current configuration.

    Raises:
        ConfigError: a handler cannot be used.
        SchemaMismatch: the database has another schema version.
    """
    if supervisor.is_supervised():
        supervisor.stop_with_parent()
    elif settings.worker.processes > 1:
        loader.load(settings)
        # Before any process is started, so that a key that cannot be read is reported once.
        _encryption(settings)
        _log_handler_warnings(settings)
        return supervisor.run(settings.worker.processes)
    daemon = Daemon(settings, loader.load(settings))
    if not supervisor.is_supervised():
        _log_handler_warnings(settings)
    # Tasks that are cancelled at the very end may call sys.exit, too: the exit code is already known.
    with suppress(SystemExit), asyncio.Runner() as runner:
        code = departure.run_until_done(runner, daemon.run(), daemon.on_handler_exit)
        departure.exit_soon(code, restart=daemon.shutdown.is_reload)
    if daemon.shutdown.is_reload:
        departure.reexec()
    return code


def _log_handler_warnings(settings: config.Config) -> None:
    """Log, once, what is valid in the configuration but may surprise."""
    for each in loader.find_suspicious_settings(settings):
        log.warning(events.HANDLER_CONFIG_SUSPICIOUS, where=str(each.origin), key=each.key, reason=each.text)


class Daemon:
    """One daemon process: its parts, their start and their stop."""

    def __init__(self, settings: config.Config, handlers: dict[str, Handler]) -> None:
        self.settings, self.handlers = settings, handlers
        self.name = f"{settings.worker.name or socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
        self.db = Database(settings.database, self.name)
        self.wake_events = WakeEvents()
        self.in_flight = InFlight()
        self.metrics = MetricsRecorder(handlers)
        self.settle_buffer = SettleBuffer(self.wake_events, self.metrics)
        self.runtime = DaemonRuntime(self.db, self.in_flight, self.metrics, _encryption(settings))
        self.schemas, self.topic_changed = SchemaCache(handlers), WakeEvent()
        children = _children(settings, handlers)
        self.observer = _observer(settings, self.name)
        self.executor = HandlerExecutor(
            handlers,
            settings.worker,
            self.in_flight,
            self.settle_buffer,
            self.runtime,
            children,
            self._wake,
            self.schemas,
            self.observer,
        )
        self.planner = ClaimPlanner(
            self.executor.capacity, self._poll_s, time.monotonic, settings.worker.claim_connections
        )
        self.shutdown = ShutdownSignals(self.wake_events, self._is_new_config_valid)
        self.health = HealthProbe(
            settings.metrics.liveness_timeout.total_seconds(), settings.database.connect_timeout.total_seconds()
        )
        self.endpoint = _endpoint(self)
        self._has_handler_exited = False
        self.claim_loops: list[ClaimLoop]
        self.listener: Listener
        self.heartbeat: Heartbeat

    async def run(self) -> ExitCode:
        """Run until asked to stop."""
        self.shutdown.install()
        self.health.loop_monitor.watch(asyncio.get_running_loop())
        if self.endpoint is not None:
            self.endpoint.start()
        systemd.notify(READY=1, STATUS="waiting for the database")
        # From here on, and not only while working: the database may be unreachable for longer than the watchdog's timeout.
        watchdog = asyncio.create_task(loop.run(Watchdog()), name=Watchdog.name)
        if await loop.wait_for_database(self._check_database, self.shutdown):
            async with self.runtime:
                await self._work()
        watchdog.cancel()
        await asyncio.to_thread(self.observer.shutdown)
        if self.endpoint is not None:
            self.endpoint.stop()
        log.info(events.DAEMON_STOPPED, worker=self.name, **self._counts())
        code = self._exit_code()
        if self.executor.has_unstoppable:
            departure.exit_now(code, restart=self.shutdown.is_reload)
        return code

    def on_handler_exit(self, error: BaseException) -> None:
        """A task that a handler started has called sys.exit, or raised KeyboardInterrupt: stop the daemon gracefully."""
        log.critical(events.HANDLER_EXITED, exc_info=error)
        self._has_handler_exited = True
        if self.shutdown.signal is None:
            self.shutdown.on_signal(signal.SIGTERM)

    def _exit_code(self) -> ExitCode:
        if self._has_handler_exited:
            return ExitCode.FOUND_A_PROBLEM
        return ExitCode.INTERRUPTED if self.shutdown.signal is signal.SIGINT else ExitCode.OK

    async def _work(self) -> None:
        """Run all loops until the daemon is drained."""
        self.listener = Listener(
            self.db, self._on_notification, self._check_locks, self.topic_changed.set, self._on_listener_mode
        )
        self.heartbeat = Heartbeat(
            self.db,
            self.in_flight,
            self.executor.on_lock_lost,
            self._registration(),
            self.status,
            MetricsReporter(self.metrics),
            self._on_drain_requested,
        )
        self.heartbeat.start()
        poll_s = self.settings.worker.poll_interval.total_seconds()
        self.health.parts = DaemonParts(self.listener, self.heartbeat, self.planner, self.executor, poll_s)
        for each in self.executor.children.values():
            asyncio.get_running_loop().add_reader(each, self.executor.on_child_message, each)
        log.info(events.DAEMON_STARTED, worker=self.name, topics=self.executor.topics, version=version("pgrouse"))
        systemd.notify(STATUS=f"working {len(self.handlers)} topics")
        try:
            await self._run_loops()
        except* (Exception, asyncio.CancelledError) as broken:
            # A bug, or a handler that cancels all tasks: the state is unknown. Messages in flight are claimed again when their locks
            # expire.
            log.critical(events.LOOP_CRASHED, exc_info=broken)
            departure.exit_now(ExitCode.FOUND_A_PROBLEM, restart=False)
        await self.executor.close()
        await asyncio.to_thread(self.heartbeat.stop)

    async def _run_loops(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop.run(each), name=each.name) for each in self._loops()]
            await self._drain()
            for task in tasks:
                task.cancel()

    def _loops(self) -> list[loop.Loop]:
        settings = self.settings.worker
        self.claim_loops = [
            ClaimLoop(
                n, self.db, self.planner, self.settle_buffer, self.executor, self.wake_events.new(), self.observer
            )
            for n in range(settings.claim_connections)
        ]
        return [
            *self.claim_loops,
            self.listener,
            Prober(self.db, self.listener),
            MaintenanceLoop(
                self.db,
                settings.maintenance_interval.total_seconds(),
                lambda: self.settle_buffer.settled_count,
                self.schemas,
                self.topic_changed,
            ),
            *_alert_loops(self.db, self.settings, self.name),
        ]

    async def _drain(self) -> None:
        """Wait for the shutdown, then: claim nothing more, release what has not started, let running handlers end, settle the last messages."""
        await self.shutdown.requested.wait()
        if self.shutdown.is_reload:
            systemd.reloading()
        else:
            systemd.notify(STOPPING=1, STATUS="draining")
        self.runtime.stopping = self.health.draining = True
        self.planner.stop()
        self.executor.release_waiting()
        if not await self._wait_until(self._is_idle, self.settings.worker.shutdown_timeout.total_seconds()):
            log.warning(events.SHUTDOWN_TIMED_OUT, running=self.executor.running)
            self.executor.cancel_running()
            await self._wait_until(self._is_idle, CANCEL_S, stop_on_second_signal=False)
            self.executor.release_running()
        # Threads that handlers started (asyncio.to_thread) may never end: the rest of the shutdown gets new ones.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())
        await self._wait_until(self._is_all_settled, LAST_SETTLE_S, stop_on_second_signal=False)

    async def _wait_until(
        self, condition: Callable[[], bool], seconds: float, *, stop_on_second_signal: bool = True
    ) -> bool:
        """Wait until the condition holds, at most this long, and (if `stop_on_second_signal`) not after a second signal; return whether it holds."""
        changed = self.wake_events.new()
        give_up_at = time.monotonic() + seconds
        while not condition():
            left = give_up_at - time.monotonic()
            if left <= 0 or (stop_on_second_signal and self.shutdown.is_immediate):
                return False
            await changed.wait(left)
        return True

    def _check_database(self) -> None:
        with self.db.startup_connection() as conn:
            schema.check(conn)
            self._apply_policies(conn)
            self.schemas.load(conn)
            if (
                conn.execute(
                    "SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'pg_cron'"
                ).fetchone()
                is None
            ):
                log.info(events.PG_CRON_MISSING, meaning="locks expire only while a daemon runs")

    def _apply_policies(self, conn: psycopg.Connection) -> None:
        """Apply the file's policies to the database if configured; otherwise log the differences."""
        if self.settings.database.apply_policies == "run":
            for change in policy_change.apply(conn, self.settings.policies):
                log.info(events.POLICY_CHANGED, topic=change.topic, change=str(change))
            return
        for change in policy_change.differences(conn, self.settings.policies):
            log.warning(
                events.POLICY_NOT_APPLIED,
                topic=change.topic,
                change=str(change),
                fix="run `pgrouse topic apply`, or set database.apply_policies",
            )

    def _wake(self) -> None:
        self.planner.wake()
        self.wake_events.set()

    def _on_notification(self) -> None:
        self.planner.on_notification()
        self.wake_events.set()

    def _on_drain_requested(self) -> None:
        """Stop gracefully, as requested through the database. Under a supervisor all processes stop, or it would restart this one."""
        if supervisor.is_supervised():
            os.kill(os.getppid(), signal.SIGTERM)
        else:
            self.shutdown.on_signal(signal.SIGTERM)

    def _check_locks(self) -> None:
        self.heartbeat.run_now()

    def _on_listener_mode(self, listening: bool) -> None:
        if not listening:
            for each in self.claim_loops:
                each.suspect_connection()
        self.planner.set_listening(listening)
        self.wake_events.set()

    def _poll_s(self) -> float:
        settings = self.settings.worker
        listening = self.listener.mode is ListenerMode.LISTENING
        return jittered((settings.poll_interval if listening else settings.degraded_poll_interval).total_seconds())

    def _is_all_settled(self) -> bool:
        return self.settle_buffer.is_idle and not any(each.may_hold_unknown for each in self.claim_loops)

    def _is_idle(self) -> bool:
        return not self.executor.running

    async def _is_new_config_valid(self) -> bool:
        """Check the current configuration in a new interpreter: this one imported the handlers when it started."""
        environ = {**os.environ, "PGROUSE_CONFIG": str(self.settings.path)} if self.settings.path else None
        check = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pgrouse", "config", "check", stdout=DEVNULL, stderr=PIPE, env=environ
        )
        _, stderr = await check.communicate()
        if check.returncode:
            log.warning(events.DAEMON_RELOAD_FAILED, reason=stderr.decode(errors="replace").strip())
        return not check.returncode

    def _registration(self) -> Registration:
        settings = self.settings.worker
        return Registration(
            self.name, socket.gethostname(), os.getpid(), version("pgrouse"), self.executor.topics, settings.concurrency
        )

    def status(self) -> dict[str, Any]:
        """Return the status for the registry."""
        return {
            "listener": self.listener.mode.value,
            "planner": self.planner.state.value,
            "running": self.executor.running,
            "waiting": self.executor.not_started,
            "in_flight": len(self.in_flight),
            **self._counts(),
        }

    def _counts(self) -> dict[str, int]:
        counts = {kind.value: count for kind, count in self.settle_buffer.counts.items() if count}
        return {**counts, "lost": self.settle_buffer.lost_count} if self.settle_buffer.lost_count else counts


def _children(settings: config.Config, handlers: dict[str, Handler]) -> dict[str, child_process.ChildProcesses]:
    return {
        topic: child_process.ChildProcesses(
            topic,
            settings.topics[topic],
            settings.handlers,
            each.concurrency or loader.DEFAULT_CHILDREN,
            settings.otel,
            # Messages are decrypted before a child gets them: it needs no key.
            without=tuple(key.env for key in settings.crypto.keys.values() if key.env),
        )
        for topic, each in handlers.items()
        if each.mode is ExecutionMode.PROCESS
    }


def _alert_loops(db: Database, settings: config.Config, holder: str) -> list[loop.Loop]:
    if not settings.alerts.to:
        return []
    return delivery_loops(db, settings, holder)


def _encryption(settings: config.Config) -> Encryption:
    if settings.crypto.current is None:
        return NoEncryption()
    from pgrouse.worker.message_crypto import MessageCrypto  # noqa: PLC0415 - extra crypto

    return MessageCrypto(require_cipher(settings), settings.crypto)


def _observer(settings: config.Config, worker: str) -> Observer:
    if not settings.otel.enabled:
        return NO_OBSERVER
    from pgrouse.telemetry import providers  # noqa: PLC0415 - extra otel
    from pgrouse.worker.telemetry import Telemetry  # noqa: PLC0415 - extra otel

    return Telemetry(worker, providers.set_providers(settings.otel, worker).shutdown)


def _endpoint(daemon: Daemon) -> MetricsEndpoint | None:
    listen = daemon.settings.metrics.listen
    if listen is None:
        return None
    try:
        from pgrouse.metrics import endpoint  # noqa: PLC0415 - extra metrics
        from pgrouse.worker.metrics_collector import create_registry  # noqa: PLC0415 - extra metrics
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise ConfigError("metrics.listen needs prometheus_client: pip install 'pgrouse[metrics]'") from error
    host, _, port = listen.rpartition(":")
    # Each of several processes has an endpoint of its own, on consecutive ports.
    place = host.strip("[]"), int(port) + (supervisor.process_number() if int(port) else 0)
    return endpoint.MetricsEndpoint(place, lambda: create_registry(daemon), daemon.health)
