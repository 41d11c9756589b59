"""The daemon: a worker in its own process, from its signals to its exit code."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from asyncio.subprocess import DEVNULL, PIPE
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from pgrouse.config import config
from pgrouse.errors import ConfigError, ExitCode, LifespanFailed, PgrouseError
from pgrouse.handlers.declaration import loader
from pgrouse.handlers.handler import Handler
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process import loop, stop_signals, systemd
from pgrouse.process.event_loop import new_event_loop
from pgrouse.process.shutdown import Requester
from pgrouse.process.shutdown_signals import ShutdownSignals
from pgrouse.process.systemd import Watchdog
from pgrouse.worker import process_exit as departure
from pgrouse.worker import supervisor
from pgrouse.worker.service import STOP_MARGIN_S, Service, encryption_of

if TYPE_CHECKING:
    from pgrouse.metrics.endpoint import MetricsEndpoint


# A supervisor kills a daemon that has not ended within this time.
KILL_AFTER_S = 5.0


def run(settings: config.Config) -> int:
    """Run a daemon until it is asked to stop; return its exit code.

    SIGHUP replaces it by a new one with the current configuration.

    Raises:
        ConfigError: a handler cannot be used.
        SchemaMismatch: the database has another schema version.
    """
    if settings.worker.processes > 1 and not supervisor.is_supervised():
        loader.load(settings)
        # Before any process starts, so that a key that cannot be read is reported once.
        encryption_of(settings)
        loader.log_suspicious_settings(settings)
        return supervisor.run(settings.worker.processes, longest_stop_s(settings) + KILL_AFTER_S)
    daemon = Daemon(settings, loader.load(settings))
    if not supervisor.is_supervised():
        loader.log_suspicious_settings(settings)
    # Tasks that are cancelled at the very end may call sys.exit, too: the exit code is already known.
    with suppress(SystemExit), asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            code = departure.run_until_done(runner, daemon.run(), daemon.on_handler_exit)
        except PgrouseError as failed:
            # The loop, which handled the signals, is closed, and the process may live on: for a thread of a lifespan,
            # or until a file changes.
            stop_signals.deliver_to(partial(stop_signals.end_at_once, code=failed.exit_code))
            raise
        departure.exit_soon(code, restart=daemon.shutdown.is_reload)
    if daemon.shutdown.is_reload:
        departure.reexec()
    return code


def longest_stop_s(settings: config.Config) -> float:
    """Return how long a daemon may take to stop, in seconds."""
    return settings.worker.shutdown_timeout.total_seconds() + _after_handlers_s(settings)


def _after_handlers_s(settings: config.Config) -> float:
    otel = settings.otel
    return STOP_MARGIN_S + (otel.flush_timeout.total_seconds() if otel.enabled else 0.0)


class Daemon(Service):
    """One daemon process."""

    shutdown: ShutdownSignals

    def __init__(self, settings: config.Config, handlers: dict[str, Handler]) -> None:
        super().__init__(settings, handlers)
        self.endpoint = _endpoint(self)
        self._has_handler_exited = False
        self._deadlines: list[threading.Timer] = []

    async def run(self) -> ExitCode:
        """Run until asked to stop.

        Raises:
            LifespanFailed: the lifespan of the handlers cannot be opened, or failed while the daemon ran.
        """
        self.shutdown.install()
        if supervisor.is_supervised():
            supervisor.link().follow(self.shutdown.on_signal)
        self.health.loop_monitor.watch(asyncio.get_running_loop())
        if self.endpoint is not None:
            self.endpoint.start()
        systemd.notify(READY=1, STATUS="waiting for the database")
        # Start it here and not only while working: the database may be unreachable for longer than the watchdog's
        # timeout.
        watchdog = asyncio.create_task(loop.run(Watchdog()), name=Watchdog.name)
        failure = await self._work_until_stopped()
        watchdog.cancel()
        await self.end()
        if self.endpoint is not None:
            self.endpoint.stop()
        code = self._exit_code() if failure is None else failure.exit_code
        if self.executor.has_unstoppable:
            departure.exit_now(code, restart=self.shutdown.is_reload)
        if failure is not None:
            # The worker stopped in time. With --reload the process lives on.
            for each in self._deadlines:
                each.cancel()
            raise failure
        return code

    async def _work_until_stopped(self) -> LifespanFailed | None:
        if await loop.wait_for_database(self.check_database, self.shutdown):
            try:
                await self.work()
            except LifespanFailed as failure:
                return failure
        return None

    def on_handler_exit(self, error: BaseException) -> None:
        """A task that a handler started has called sys.exit, or raised KeyboardInterrupt.

        Stop the daemon gracefully.
        """
        log.critical(events.HANDLER_EXITED, exc_info=error)
        self._has_handler_exited = True
        if self.shutdown.signal is None:
            self.shutdown.on_signal(signal.SIGTERM, Requester.APPLICATION)

    def _exit_code(self) -> ExitCode:
        if self._has_handler_exited or self._lifespan_error is not None:
            return ExitCode.FOUND_A_PROBLEM
        return ExitCode.INTERRUPTED if self.shutdown.signal is signal.SIGINT else ExitCode.OK

    def _new_shutdown(self) -> ShutdownSignals:
        return ShutdownSignals(self.wake_events, self._is_new_config_valid)

    def _on_started(self) -> None:
        super()._on_started()
        systemd.notify(STATUS=f"working {len(self.handlers)} topics")

    def _on_crash(self, broken: BaseException) -> None:
        # The state is unknown.
        log.critical(events.LOOP_CRASHED, exc_info=broken)
        departure.exit_now(ExitCode.FOUND_A_PROBLEM, restart=False)

    def _on_lifespan_stuck(self) -> None:
        super()._on_lifespan_stuck()
        departure.exit_now(ExitCode.FOUND_A_PROBLEM, restart=False)

    def _on_draining(self) -> None:
        self._deadlines.append(departure.exit_after(longest_stop_s(self.settings), self._abandon_stop))
        if self.shutdown.is_reload:
            systemd.reloading()
        else:
            systemd.notify(STOPPING=1, STATUS="draining")

    def _abandon_stop(self) -> None:
        log.error(
            events.SHUTDOWN_ABANDONED,
            in_flight=len(self.in_flight),
            fix="the database did not answer: what it was not told is claimed again when the locks expire",
        )
        departure.exit_now(self._exit_code(), restart=self.shutdown.is_reload)

    def _before_last_settles(self) -> None:
        if self.shutdown.is_immediate:
            self._deadlines.append(departure.exit_after(_after_handlers_s(self.settings), self._abandon_stop))
        # Threads that handlers started (asyncio.to_thread) may never end: the rest of the shutdown gets new ones.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor())

    def _on_drain_requested(self) -> None:
        """Stop gracefully, as requested through the database.

        Under a supervisor all processes stop; otherwise the supervisor would restart this one.
        """
        if supervisor.is_supervised():
            supervisor.link().request_drain()
        else:
            self.shutdown.on_signal(signal.SIGTERM, Requester.OPERATOR)

    async def _is_new_config_valid(self) -> bool:
        """Check the current configuration in a new interpreter: this one imported the handlers when it started."""
        environ = os.environ | self._config_environ()
        check = await asyncio.create_subprocess_exec(
            sys.executable, *self.settings.command, "config", "check", stdout=DEVNULL, stderr=PIPE, env=environ
        )
        _, stderr = await check.communicate()
        # Policies and schedules that are not applied yet are not an error of the configuration.
        is_valid = check.returncode in (ExitCode.OK, ExitCode.FOUND_A_PROBLEM)
        if not is_valid:
            log.warning(events.DAEMON_RELOAD_FAILED, reason=stderr.decode(errors="replace").strip())
        return is_valid

    def _config_environ(self) -> dict[str, str]:
        """Return the variables with which another process finds the same configuration."""
        environ = {"PGROUSE_CONFIG": str(self.settings.path)} if self.settings.path else {}
        if self.settings.origin("handlers", "modules").kind == "flag":
            environ["PGROUSE_HANDLERS__MODULES"] = ",".join(self.settings.handlers.modules)
        return environ


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
    # With several processes each has its own endpoint, on consecutive ports.
    place = host.strip("[]"), int(port) + (supervisor.process_number() if int(port) else 0)
    return endpoint.MetricsEndpoint(place, lambda: create_registry(daemon), daemon.health)
