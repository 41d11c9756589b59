"""A worker inside an application: in the lifespan of a web application, in a notebook, in a test, in a script.

It leaves the process as it is: no signal handlers, no event loop policy, no configuration of logging, no port, and it
never ends the process.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, TypedDict, Unpack

import psycopg

from pgrouse.alerts.validate import validate_sinks
from pgrouse.config import config
from pgrouse.config.dsn import is_dsn
from pgrouse.config.duration import AnyDuration
from pgrouse.database.database_errors import explain_database_error
from pgrouse.errors import ConfigError, DatabaseUnreachable, ExitCode, LifespanFailed, PgrouseError
from pgrouse.handlers.declaration import loader
from pgrouse.handlers.declaration.discovery import with_declared
from pgrouse.handlers.declaration.topic import Topic
from pgrouse.handlers.handler import Handler
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.process.event_loop import new_event_loop
from pgrouse.process.new_thread import call_in_new_thread
from pgrouse.process.owner import OwnerProcess
from pgrouse.worker.service import CANCEL_S, LAST_SETTLE_S, Service

# The time after the handlers: the last settles, the last report, and closing the connections.
END_S = CANCEL_S + LAST_SETTLE_S + 15.0


class WorkerThread:
    """The thread of one worker.

    Args:
        start_worker: starts the worker; returns when it processes messages.
        wait: returns when the worker has stopped.
    """

    def __init__(self, start_worker: Callable[[], Awaitable[None]], wait: Callable[[], Awaitable[None]]) -> None:
        self._start_worker, self._wait = start_worker, wait
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._ended: Future[None] = Future()
        # The interpreter does not wait for it: a program that ends without stopping its worker ends.
        self._thread = threading.Thread(target=self._run, name="pgrouse worker", daemon=True)

    def start(self) -> None:
        """Start the thread; return when the worker processes messages, or raise the reason why it cannot."""
        self._thread.start()
        self._started.result()

    def stop(self, request: Callable[[], None], timeout_s: float) -> None:
        """Call `request` on the event loop, and wait until the worker has stopped.

        Raises:
            TimeoutError: it has not stopped in time; the thread is left.
            BaseException: the error that ended the worker.
        """
        with suppress(RuntimeError):  # it has ended by itself
            self._started.result().call_soon_threadsafe(request)
        self._ended.result(timeout_s + END_S)

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=new_event_loop) as runner:
                runner.run(self._work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the worker is started or stopped
            self._ended.set_exception(error)
            if not self._started.done():
                self._started.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _work(self) -> None:
        await self._start_worker()
        self._started.set_result(asyncio.get_running_loop())
        await self._wait()


class WorkerOptions(TypedDict, total=False):
    """Keys of the table `[worker]`."""

    name: str
    concurrency: int
    threads: int
    claim_connections: int
    claim_batch_size: int
    prefetch: int
    poll_interval: AnyDuration
    degraded_poll_interval: AnyDuration
    shutdown_timeout: AnyDuration
    maintenance_interval: AnyDuration


class Worker:
    """Processes messages in this process.

    Use it as `async with Worker("pgrouse.toml"):`, `with Worker(...):`, or `await Worker(...).run()`.

    `async with` and `run` use the event loop that runs; `with` starts a thread with its own loop. Several workers may
    run at once. The configuration `[log]`, `[metrics]`, `[web]` and `worker.processes` has no effect.

    Args:
        source: a configuration file, or a connection string (then no file is read). By default, the file that `pgrouse
            run` would read.
        dsn: a connection string, instead of the file's.
        modules: modules with `@topic` functions, instead of `handlers.modules`.
        handlers: functions by topic, in addition to those of the configuration.
        **options: keys of the table `[worker]`, instead of the file's.
    """

    def __init__(
        self,
        source: config.Config | Path | str | None = None,
        *,
        dsn: str | None = None,
        modules: Sequence[str] = (),
        handlers: Mapping[str, Callable[..., Any]] | None = None,
        **options: Unpack[WorkerOptions],
    ) -> None:
        if isinstance(source, config.Config) and (dsn or modules or options):
            raise TypeError("dsn, modules and options belong to the configuration that is given")
        self._reads_file = not (isinstance(source, str) and is_dsn(source))
        if not self._reads_file:
            source, dsn = None, dsn or str(source)
        self._source, self._dsn, self._modules, self._options = source, dsn, list(modules), options
        self._handlers = dict(handlers or {})
        self._service: Service | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread: WorkerThread | None = None
        self._owner = OwnerProcess("Worker")

    @property
    def name(self) -> str:
        """Its name in the registry of workers and in `locked_by`; "" before it was started."""
        return self._service.name if self._service else ""

    @property
    def is_running(self) -> bool:
        """Whether it processes messages here: it was started, and has neither stopped nor failed.

        Not in a fork of the process that started it; a fork may start its own.
        """
        return self._owner.is_here and self._task is not None and not self._task.done()

    def status(self) -> dict[str, Any]:
        """Return what it does now, as `pgrouse worker list` shows it.

        The keys are listener, planner, running, waiting, in_flight, and counts by outcome.
        """
        return self._service.status() if self._service and self.is_running else {}

    async def start(self) -> None:
        """Start it on the event loop that runs; return when it processes messages.

        Raises:
            ConfigError: the configuration or a handler cannot be used.
            LifespanFailed: `handlers.lifespan` did not start.
            DatabaseUnreachable: the database does not answer.
            SchemaMismatch: the schema is missing, older or newer.
        """
        if self.is_running:
            raise RuntimeError("the worker runs already")
        service = _new_service(self._settings(), self._handlers)
        await _check(service)
        self._owner = OwnerProcess("Worker")
        self._service, self._task = service, asyncio.create_task(_work(service), name="pgrouse worker")
        started = asyncio.ensure_future(service.has_started.wait())
        try:
            await asyncio.wait([self._task, started], return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self.stop(timeout=0)
            raise
        finally:
            started.cancel()
        if self._task.done():
            await self._task

    async def stop(self, *, timeout: float | None = None) -> None:  # noqa: ASYNC109 - running handlers get this time
        """Stop it: let running handlers end, settle, and release the messages that have not begun.

        If this is cancelled it stops at once.

        Async handlers that run longer are cancelled. A sync handler cannot be stopped: its message is released, and its
        thread ends by itself.

        Args:
            timeout: how long running handlers have, in seconds; `worker.shutdown_timeout` unless given.

        Raises:
            BaseException: the error that ended it before.
        """
        if self._service is None or self._task is None or not self._owner.is_here:
            return
        if timeout is not None:
            self._service.shutdown_timeout_s = timeout
            # Another caller may have asked it to stop before, with more time.
            asyncio.get_running_loop().call_later(timeout, self._service.shutdown.hasten)
        self._service.shutdown.request()
        await self.wait()

    async def wait(self) -> None:
        """Wait until it has stopped: by `stop`, by `pgrouse worker drain`, or because it failed.

        In a fork of the process that started it there is nothing to wait for.

        Raises:
            BaseException: why it failed.
        """
        if self._task is not None and self._owner.is_here:
            await asyncio.shield(self._task)

    async def run(self) -> None:
        """Start it, and return when it has stopped.

        If this is cancelled, running handlers are cancelled and their messages are released.

        Raises:
            ConfigError, DatabaseUnreachable, SchemaMismatch: as `start`.
        """
        await self.start()
        try:
            await self.wait()
        except asyncio.CancelledError:
            await self._stop_now()
            raise

    async def _stop_now(self) -> None:
        """Stop without waiting for handlers; a second cancellation leaves the rest to the expiry of locks."""
        try:
            await self.stop(timeout=0)
        except asyncio.CancelledError:
            if self._task is not None and not self._task.done():
                self._task.cancel()
                await asyncio.wait([self._task])
            raise

    async def __aenter__(self) -> Worker:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, asyncio.CancelledError):
            await self._stop_now()
        else:
            await self.stop()

    def __enter__(self) -> Worker:
        self._thread = WorkerThread(self.start, self.wait)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        thread, service = self._thread, self._service
        if thread is not None and service is not None and self._owner.is_here:
            thread.stop(service.shutdown.request, service.shutdown_timeout_s)

    def _settings(self) -> config.Config:
        """Read the configuration.

        This is not done when the object is created, because handler modules may import the module that creates it.
        """
        if isinstance(self._source, config.Config):
            return with_declared(self._source)
        overrides: dict[str, dict[str, Any]] = {"worker": dict(self._options)}
        if self._modules:
            overrides["handlers"] = {"modules": self._modules}
        if self._dsn is not None:
            overrides["database"] = {"dsn": str(self._dsn), "listen_dsn": str(self._dsn)}
        return with_declared(config.load_for_worker(self._file(), overrides))

    def _file(self) -> Path | None:
        if not self._reads_file:
            return None
        return config.find(Path(self._source) if isinstance(self._source, str | Path) else None)


def _new_service(settings: config.Config, functions: Mapping[str, Callable[..., Any]]) -> Service:
    handlers = loader.load(settings)
    handlers |= {topic: _handler(settings, topic, function) for topic, function in functions.items()}
    if not handlers:
        raise ConfigError("there is no handler: give functions by topic (handlers=...), modules, or a file with topics")
    if settings.alerts.to:
        validate_sinks(settings)
    loader.log_suspicious_settings(settings)
    return Service(settings, handlers)


def _handler(settings: config.Config, topic: str, function: Callable[..., Any]) -> Handler:
    """Return a function as the handler of a topic, with the settings that the file has for the topic."""
    if isinstance(function, Topic):
        if topic not in settings.topics:
            return loader.find_declared(topic, function)
        function = function.function
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__qualname__)}"
    chosen = settings.topics.get(topic, config.TopicSettings(handler="given:function"))
    if chosen.isolation == "process":
        raise ConfigError(f'topic {topic} has isolation = "process", which needs the name of its handler in the file')
    return loader.inspect_handler(topic, name, function, chosen, settings.handlers)


async def _check(service: Service) -> None:
    try:
        await call_in_new_thread(service.check_database)
    except psycopg.Error as error:
        text, code = explain_database_error(error)
        is_away = code in (ExitCode.DATABASE_UNREACHABLE, ExitCode.TRY_AGAIN)
        raise (DatabaseUnreachable if is_away else PgrouseError)(text) from error


async def _work(service: Service) -> None:
    try:
        await service.work()
    except LifespanFailed:  # that was logged
        raise
    except (Exception, BaseExceptionGroup) as broken:
        log.critical(events.LOOP_CRASHED, exc_info=broken)
        raise
    finally:
        await service.end()
