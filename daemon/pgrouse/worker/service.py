"""The work of a worker: builds its parts, runs the loops in one TaskGroup, and stops them in order.

A daemon (daemon.py) runs it in its own process, Worker (worker.py) in the process of an application: this module must
not change the process.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from secrets import token_hex
from typing import Any

import psycopg

from pgrouse.alerts.delivery import delivery_loops
from pgrouse.client.apply import configuration_change
from pgrouse.client.apply.configuration_change import AnyChange
from pgrouse.client.apply.schedule_change import ScheduleChange
from pgrouse.client.connection import pooler
from pgrouse.client.connection.database import Database
from pgrouse.config import config
from pgrouse.crypto.cipher import Cipher
from pgrouse.crypto.configured_cipher import require_cipher
from pgrouse.database.install import schema
from pgrouse.database.schema_name import schema_name, use_schema
from pgrouse.errors import LifespanFailed
from pgrouse.handlers.declaration import loader
from pgrouse.handlers.declaration.lifespan import Lifespan
from pgrouse.handlers.encryption import Encryption, NoEncryption
from pgrouse.handlers.handler import ExecutionMode, Handler
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.logging.log import secrets_of
from pgrouse.process import loop
from pgrouse.process.backoff import jittered
from pgrouse.process.new_thread import call_in_new_thread
from pgrouse.process.shutdown import Requester, Shutdown
from pgrouse.process.wake_event import WakeEvent, WakeEvents
from pgrouse.values.topic_pattern import is_pattern
from pgrouse.worker.child import child_process, django_connections
from pgrouse.worker.execution.daemon_runtime import DaemonRuntime
from pgrouse.worker.execution.executor import HandlerExecutor
from pgrouse.worker.execution.failure_hooks import FailureHooks
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.execution.schema_cache import SchemaCache
from pgrouse.worker.execution.settle_buffer import SettleBuffer
from pgrouse.worker.health import DaemonParts, HealthProbe
from pgrouse.worker.loop.claim_loop import ClaimLoop
from pgrouse.worker.loop.claim_planner import ClaimPlanner
from pgrouse.worker.loop.heartbeat import Heartbeat, Registration, WorkerRequests
from pgrouse.worker.loop.listener import Listener, ListenerMode, Prober
from pgrouse.worker.maintenance import MaintenanceLoop
from pgrouse.worker.message_crypto import MessageCrypto
from pgrouse.worker.reporting.log_capture import LogCapture
from pgrouse.worker.reporting.metrics_recorder import MetricsRecorder
from pgrouse.worker.reporting.metrics_reporter import MetricsReporter
from pgrouse.worker.reporting.observer import NO_OBSERVER, Observer

# After the shutdown timeout: how long cancelled handlers may take to end, and how long the last settles may take; the
# latter longer if there is time left.
CANCEL_S = 2.0
LAST_SETTLE_S = 4.0
LONGEST_SETTLE_S = 10.0
# How long a stop may take in addition to the shutdown timeout, all steps together: a server that does not answer may
# use up several of their limits.
STOP_MARGIN_S = 10.0
# The heartbeat ends after the handlers, and leaves the rest of the margin to the later steps.
HEARTBEAT_END_S = 5.0
AFTER_HEARTBEAT_S = 2.0


class Service:
    """One worker: its parts, their start and their stop.

    Attributes:
        shutdown: ends it.
        shutdown_timeout_s: how long running handlers have to end after that.
        has_started: set when all loops run.
    """

    def __init__(self, settings: config.Config, handlers: dict[str, Handler]) -> None:
        self.settings, self.handlers = settings, handlers
        self.name = f"{settings.worker.name or socket.gethostname()}:{os.getpid()}:{token_hex(2)}"
        self.db = Database(settings.database, self.name)
        self.wake_events = WakeEvents()
        self.in_flight = InFlight()
        self.metrics = MetricsRecorder(topic for topic in handlers if not is_pattern(topic))
        self.settle_buffer = SettleBuffer(self.wake_events, self.metrics)
        self.runtime = DaemonRuntime(self.db, self.in_flight, self.metrics, encryption_of(settings), settings.web.url)
        self.schemas, self.topic_changed = SchemaCache(handlers), WakeEvent()
        children = _children(settings, handlers, self.runtime.encryption.cipher)
        self.observer = _observer(settings, self.name)
        # Handlers and hooks run in copies of this context, where calls mean the queue of this worker.
        with use_schema(self.db.schema):
            self.hooks = self._new_hooks()
            keeps_logs = any(each.log_bytes for each in handlers.values())
            self.capture = LogCapture(secrets_of(settings)) if keeps_logs else None
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
                self.hooks,
                self.capture,
            )
        self.planner = ClaimPlanner(
            self.executor.capacity,
            self._poll_s,
            time.monotonic,
            settings.worker.claim_connections,
            self.executor.topics,
        )
        self._is_drain_requested = False
        self.shutdown = self._new_shutdown()
        self.shutdown_timeout_s = settings.worker.shutdown_timeout.total_seconds()
        self.has_started = asyncio.Event()
        self.health = HealthProbe(
            settings.metrics.liveness_timeout.total_seconds(), settings.database.connect_timeout.total_seconds()
        )
        self.lifespan = self._new_lifespan()
        self._lifespan_error: LifespanFailed | None = None
        self._stop_by = 0.0
        self.claim_loops: list[ClaimLoop]
        self.listener: Listener
        self.heartbeat: Heartbeat

    async def work(self) -> None:
        """Run until asked to stop.

        Raises:
            LifespanFailed: the lifespan of the handlers cannot be opened, or failed while the worker ran.
        """
        with use_schema(self.db.schema):
            await self._open_and_work()

    async def _open_and_work(self) -> None:
        async with self.runtime:
            if not await self._start_lifespan():
                return
            try:
                await self._work()
            finally:
                await self._end_lifespan()
        if self._lifespan_error is not None:
            raise self._lifespan_error

    async def end(self) -> None:
        """Export the last measurements, and report that the worker has stopped."""
        await call_in_new_thread(self.observer.shutdown)
        log.info(events.DAEMON_STOPPED, worker=self.name, **self._counts())

    def check_database(self) -> None:
        """Make sure that the database has the schema of this version, and read from it what handlers need. Blocks.

        Raises:
            DatabaseUnreachable, SchemaMismatch, ConfigError.
        """
        with self.db.startup_connection() as conn:
            schema.check(conn)
            self._apply_policies(conn)
            self.schemas.load(conn)
            self._report_pooler(conn)
            if (
                conn.execute(
                    "SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'pg_cron'"
                ).fetchone()
                is None
            ):
                log.info(events.PG_CRON_MISSING, meaning="locks expire only while a daemon runs")

    async def _work(self) -> None:
        """Run all loops until the worker is drained."""
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
            self._on_requests,
        )
        self.heartbeat.start()
        poll_s = self.settings.worker.poll_interval.total_seconds()
        self.health.parts = DaemonParts(self.listener, self.heartbeat, self.planner, self.executor, poll_s)
        for each in self.executor.children.values():
            asyncio.get_running_loop().add_reader(each, self.executor.on_child_message, each)
        log.info(events.DAEMON_STARTED, worker=self.name, topics=self.executor.topics, version=version("pgrouse"))
        if django_connections.is_debugging():
            log.warning(
                events.DJANGO_DEBUG_ON,
                meaning="Django keeps every statement of a handler in memory until the handler ends",
                fix="set DEBUG = False in the settings of production",
            )
        if self.capture is not None:
            self.capture.start()
        self._on_started()
        try:
            await self._run_loops()
        except (Exception, BaseExceptionGroup, asyncio.CancelledError) as broken:
            self._on_crash(broken)
            raise
        finally:
            await self._close()

    async def _close(self) -> None:
        """End the handlers and the heartbeat."""
        for each in self.executor.children.values():
            asyncio.get_running_loop().remove_reader(each)
        try:
            await self.executor.close()
        finally:
            if self.capture is not None:
                self.capture.stop()
            self.heartbeat.stop_soon()
        # Without a stop, the worker crashed or was cancelled, and has used no time of the shutdown.
        stop_by = self._stop_by or time.monotonic()
        left_s = max(0.0, stop_by + STOP_MARGIN_S - AFTER_HEARTBEAT_S - time.monotonic())
        await call_in_new_thread(partial(self.heartbeat.stop, min(HEARTBEAT_END_S, left_s)))

    def _new_hooks(self) -> FailureHooks | None:
        on_failure, on_death = (loader.find_hooks(self.settings.handlers, key) for key in ("on_failure", "on_death"))
        return FailureHooks(on_failure, on_death, lambda: self.runtime.resources) if on_failure or on_death else None

    def _new_lifespan(self) -> Lifespan | None:
        rules = self.settings.handlers
        function = loader.find_lifespan(rules)
        if function is None:
            return None
        name = f"handlers.lifespan: {rules.lifespan}"
        return Lifespan(name, function, self._on_lifespan_failed, self._on_lifespan_stuck)

    async def _start_lifespan(self) -> bool:
        """Open what handlers share; return False if asked to stop in the meantime.

        Raises:
            LifespanFailed: why it cannot be opened.
        """
        if self.lifespan is None:
            return True
        starting = asyncio.ensure_future(self.lifespan.start(self.settings.handlers.startup_timeout.total_seconds()))
        stopping = asyncio.ensure_future(self.shutdown.requested.wait())
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                self.runtime.resources = starting.result()
            return starting.done()
        except LifespanFailed as failed:
            log.critical(events.LIFESPAN_FAILED, lifespan=self.settings.handlers.lifespan, exc_info=failed)
            raise
        finally:
            stopping.cancel()
            starting.cancel()

    async def _end_lifespan(self) -> None:
        """Call the last hooks, and close what handlers share."""
        if self.hooks is not None:
            await self.hooks.close(self._left_s())
        if self.lifespan is not None:
            await self.lifespan.end(self._left_s())

    def _left_s(self) -> float:
        """How long the shutdown may still take."""
        return CANCEL_S if self.shutdown.is_immediate else max(CANCEL_S, self._stop_by - time.monotonic())

    def _on_lifespan_failed(self, error: BaseException) -> None:
        """Stop: the lifespan has ended while handlers use it."""
        log.critical(events.LIFESPAN_FAILED, lifespan=self.settings.handlers.lifespan, exc_info=error)
        self._lifespan_error = LifespanFailed(f"handlers.lifespan: {self.settings.handlers.lifespan} failed: {error}")
        self._lifespan_error.__cause__ = error
        if not self.shutdown.requested.is_set():
            self.shutdown.request()

    def _on_lifespan_stuck(self) -> None:
        """The start of the lifespan blocks the event loop, so no signal and no time limit can stop it.

        Called in another thread.
        """
        fix = "do not block in an async lifespan: decorate it with @contextmanager instead"
        log.critical(events.LIFESPAN_TIMED_OUT, lifespan=self.settings.handlers.lifespan, fix=fix)

    def _new_shutdown(self) -> Shutdown:
        return Shutdown(self.wake_events)

    def _on_started(self) -> None:
        self.has_started.set()

    def _on_crash(self, broken: BaseException) -> None:
        """A loop has failed: a bug, or a handler cancels all tasks.

        Messages in flight are claimed again when their locks expire.
        """

    def _on_draining(self) -> None:
        """Run at the start of the stop."""

    def _before_last_settles(self) -> None:
        """Run when all handlers have ended, or were cancelled."""

    def _on_requests(self, requests: WorkerRequests) -> None:
        """Do what operators requested through the database."""
        concurrency = requests.concurrency or self.settings.worker.concurrency
        if concurrency != self.executor.concurrency:
            log.info(events.WORKER_SCALED, worker=self.name, concurrency=concurrency)
            self.executor.scale(concurrency)
        if requests.drain and not self._is_drain_requested:
            # Request it only once: a second request would stop the worker at once.
            self._is_drain_requested = True
            self._on_drain_requested()

    def _on_drain_requested(self) -> None:
        """Stop gracefully, as requested through the database."""
        self.shutdown.request(Requester.OPERATOR)

    async def _run_loops(self) -> None:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(loop.run(each), name=each.name) for each in self._loops()]
            await self._drain()
            await loop.end(tasks)

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
        """Wait for the shutdown, then end the daemon's work in order.

        Claim nothing more, release what has not started, let running handlers end, settle the last messages.
        """
        await self.shutdown.requested.wait()
        self._on_draining()
        self.runtime.stopping = self.health.draining = True
        self._stop_by = time.monotonic() + self.shutdown_timeout_s
        self.planner.stop()
        self.executor.release_waiting()
        if not await self._wait_until(self._is_idle, self.shutdown_timeout_s):
            log.warning(events.SHUTDOWN_TIMED_OUT, running=self.executor.running)
            self.executor.cancel_running()
            await self._wait_until(self._is_idle, CANCEL_S, stop_on_second_signal=False)
            self.executor.release_running()
        self._before_last_settles()
        settle_s = max(LAST_SETTLE_S, min(self._left_s(), LONGEST_SETTLE_S))
        await self._wait_until(self._is_all_settled, settle_s, stop_on_second_signal=False)

    async def _wait_until(
        self, condition: Callable[[], bool], seconds: float, *, stop_on_second_signal: bool = True
    ) -> bool:
        """Wait at most this long until the condition holds; with `stop_on_second_signal` only until a second signal.

        Return whether it holds.
        """
        changed = self.wake_events.new()
        give_up_at = time.monotonic() + seconds
        while not condition():
            left = give_up_at - time.monotonic()
            if left <= 0 or (stop_on_second_signal and self.shutdown.is_immediate):
                return False
            await changed.wait(left)
        return True

    def _report_pooler(self, conn: psycopg.Connection) -> None:
        if pooler.is_direct(conn):
            return
        log.info(
            events.POOLER_FOUND,
            prepared_statements="used" if conn.prepare_threshold is not None else "not used",
            listen_dsn="set" if self.settings.database.listen_dsn else "not set",
            meaning="settings of sessions are left as they are; in transaction mode notifications arrive only at a "
            "direct database.listen_dsn",
        )

    def _apply_policies(self, conn: psycopg.Connection) -> None:
        """Apply the policies and schedules of the configuration to the database if configured.

        Otherwise log the differences.

        Raises:
            ConfigError: the server cannot use a schedule.
        """
        if self.settings.database.apply_policies == "run":
            for change in configuration_change.apply(conn, self.settings):
                self._log_change(change, is_applied=not isinstance(change, ScheduleChange) or change.action != "keep")
            return
        for change in configuration_change.checked_differences(conn, self.settings):
            self._log_change(change, is_applied=False)

    def _log_change(self, change: AnyChange, *, is_applied: bool) -> None:
        if isinstance(change, ScheduleChange):
            event, about = (
                events.SCHEDULE_CHANGED if is_applied else events.SCHEDULE_NOT_APPLIED,
                {"schedule": change.name},
            )
        else:
            event, about = events.POLICY_CHANGED if is_applied else events.POLICY_NOT_APPLIED, {"topic": change.topic}
        if is_applied:
            log.info(event, **about, change=str(change))
        else:
            fix = "run `pgrouse migrate`, or set database.apply_policies"
            log.warning(event, **about, change=str(change), fix=fix)

    def _wake(self) -> None:
        self.planner.wake()
        self.wake_events.set()

    def _on_notification(self, payload: str) -> None:
        self.planner.on_notification(payload)
        # The other loops claim only while there is a backlog.
        self.claim_loops[0].wake_event.set()

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


def _children(
    settings: config.Config, handlers: dict[str, Handler], cipher: Cipher | None
) -> dict[str, child_process.ChildProcesses]:
    return {
        topic: child_process.ChildProcesses(
            topic,
            settings.topics[topic],
            settings.handlers,
            settings.otel,
            # Messages are decrypted before a child gets them: it needs no key.
            without=tuple(key.env for key in settings.crypto.keys.values() if key.env),
            log_settings=settings.log,
            is_encrypted=cipher is not None and (is_pattern(topic) or cipher.covers(topic)),
            schema=schema_name(settings.database.schema),
        )
        for topic, each in handlers.items()
        if each.mode is ExecutionMode.PROCESS
    }


def _alert_loops(db: Database, settings: config.Config, holder: str) -> list[loop.Loop]:
    if not settings.alerts.to:
        return []
    return delivery_loops(db, settings, holder)


def encryption_of(settings: config.Config) -> Encryption:
    """Return the object that encrypts and decrypts.

    Raises:
        ConfigError: a key cannot be read.
    """
    if settings.crypto.current is None:
        return NoEncryption()
    return MessageCrypto(require_cipher(settings), settings.crypto)


def _observer(settings: config.Config, worker: str) -> Observer:
    if not settings.otel.enabled:
        return NO_OBSERVER
    from pgrouse.telemetry import providers  # noqa: PLC0415 - extra otel
    from pgrouse.worker.reporting.telemetry import Telemetry  # noqa: PLC0415 - extra otel

    return Telemetry(worker, providers.set_providers(settings.otel, worker).shutdown)
