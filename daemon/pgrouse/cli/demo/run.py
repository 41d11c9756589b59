"""Runs the demo, from its first line to its verdict."""

from __future__ import annotations

import time
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pgrouse.cli.demo import (
    file_jobs,
    hints,
    input_files,
    latency,
    report,
    retries,
    verification,
    worker_kill,
)
from pgrouse.cli.demo.alerts import AlertFeed
from pgrouse.cli.demo.environment import DemoEnvironment, examples
from pgrouse.cli.demo.input_files import InputFiles
from pgrouse.cli.demo.latency import LostNotifications, WakeLatency
from pgrouse.cli.demo.progress_watch import ProgressWatch, PublishedMessages
from pgrouse.cli.demo.report import DemoReport
from pgrouse.cli.demo.run_folder import RunFolder
from pgrouse.cli.demo.screen import Screen
from pgrouse.cli.demo.worker import DemoWorkers
from pgrouse.cli.demo.worker_kill import WorkerKill

CONFIG = examples() / "pgrouse.toml"
# The worker is killed when a part of the files is done: it holds some of them, and others are left for its successor.
KILL_AT = 0.25


@dataclass(frozen=True)
class DemoOptions:
    """The options of the demo.

    Attributes:
        directory: the folder of the files; None = the standard library.
        limit: the maximum number of files.
        dsn: a database that the user named; None = a private server.
        keep: leave everything running.
    """

    directory: Path | None
    limit: int | None
    dsn: str | None
    keep: bool


@dataclass(frozen=True)
class DemoEvents:
    """What happened."""

    files: InputFiles
    files_per_s: float
    pauses_s: list[float]
    killed: WorkerKill
    wake: WakeLatency
    lost: LostNotifications


def run(options: DemoOptions, screen: Screen) -> DemoReport:
    """Run the demo. When it returns, everything that it started has ended, unless it is to be kept."""
    began = time.monotonic()
    screen.tell("demo", "two daemons work through real files, and a few things are broken on purpose")
    with ExitStack() as ends:
        folder = ends.enter_context(RunFolder(options.dsn))
        environment = _set_up(folder, ends.enter_context(DemoEnvironment(options.dsn, screen)))
        workers = ends.enter_context(
            DemoWorkers(environment.dsn, CONFIG, folder.path, keep=options.keep, note=folder.note)
        )
        with environment.connect() as listening, environment.connect() as conn:
            watch = ProgressWatch(conn, PublishedMessages(), workers, AlertFeed(listening), screen)
            demo_report = _report(watch, options, _play(watch, options), environment, began)
        _conclude(demo_report, screen)
        if not demo_report.balanced:
            folder.keep_logs = True
            screen.tell("logs", f"what the daemons said is in {folder.path}")
        if options.keep:
            hints.tell(environment.dsn, options.dsn, folder.path, hints.start_dashboard(workers, CONFIG), screen)
            # Nothing is cleared away.
            ends.pop_all()
    return demo_report


def stop(dsn: str | None, screen: Screen) -> None:
    """Stop everything that a demo with --keep, or a killed demo, left running."""
    with RunFolder(dsn) as folder:
        if not folder.was_left:
            screen.tell("stop", "no demo was left running")
            return
        processes = folder.stop_daemons()
        environment = DemoEnvironment(dsn, screen)
        environment.server.start()
        environment.clear_away()
        made = "the private server" if environment.is_private else "the schemas of the demo"
        screen.tell("stop", f"{processes} processes and {made} are gone")


def _set_up(folder: RunFolder, environment: DemoEnvironment) -> DemoEnvironment:
    """Create everything new and empty, whatever an earlier demo has left."""
    if folder.stop_daemons():
        environment.screen.tell("kept", "the daemons that an earlier demo had left running are stopped")
    folder.note([])
    environment.install()
    return environment


def _play(watch: ProgressWatch, options: DemoOptions) -> DemoEvents:
    """Run the parts of the demo; each prints what happened."""
    survivor, victim = watch.workers.start(), watch.workers.start()
    watch.screen.tell("workers", f"{survivor} and {victim} run {_short(CONFIG)}")
    files = input_files.find(options.directory, options.limit)
    file_jobs.publish(watch, files)
    retries.publish(watch)
    watch.until(lambda: watch.done >= KILL_AT * len(watch.published), "working through the files")
    killed = worker_kill.kill(watch, victim)
    watch.until(lambda: not watch.waiting, "working through the rest")
    files_per_s = file_jobs.tell(watch, killed)
    pauses = retries.tell(watch)
    woken = latency.measure(watch)
    lost = latency.lose_notifications(watch, _poll())
    if not options.keep:
        _stop_workers(watch)
    return DemoEvents(files, files_per_s, pauses, killed, woken, lost)


def _report(
    watch: ProgressWatch, options: DemoOptions, events: DemoEvents, environment: DemoEnvironment, began: float
) -> DemoReport:
    checks = list(
        verification.check(watch.conn, watch.published, events.files, events.killed, watch.alerts, watch.step)
    )
    watch.count()
    return DemoReport(
        database=str(environment.server),
        directory=str(events.files.root),
        topics=report.topics(watch.published.by_topic, watch.counts),
        files_per_s=events.files_per_s,
        retry_pauses_s=events.pauses_s,
        killed=events.killed,
        wake=events.wake,
        lost_notifications=events.lost,
        alerts_heard=watch.alerts.notifications,
        work_began_after_s=(watch.first_seen_at or began) - began,
        took_s=time.monotonic() - began,
        checks=checks,
    )


def _conclude(demo_report: DemoReport, screen: Screen) -> None:
    screen.table(report.table(demo_report.topics))
    for each in demo_report.checks:
        screen.check(each.ok, each.text)
    verdict = "all checks passed" if demo_report.balanced else "SOME CHECKS FAILED"
    screen.tell(
        "result",
        f"{verdict}; {demo_report.took_s:.1f} s in all,"
        f" first message done after {demo_report.work_began_after_s:.1f} s",
    )


def _stop_workers(watch: ProgressWatch) -> None:
    began = time.monotonic()
    names = " and ".join(each.name for each in watch.workers.running)
    in_order = watch.workers.stop()
    how = "drained and ended" if in_order else "did not end in order"
    watch.screen.tell("stop", f"{names} {how} within {time.monotonic() - began:.1f} s of SIGTERM")


def _poll() -> str:
    """Return how often the daemons look without a notification, as their configuration writes it."""
    return str(tomllib.loads(CONFIG.read_text())["worker"]["poll_interval"])


def _short(path: Path) -> str:
    """Return a path below the working directory relative to it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
