"""The story of the demo, from the first line to the verdict."""

from __future__ import annotations

import time
import tomllib
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pgrouse.demo import dashboard, hints, pipeline, report, retries

from pgrouse.demo import verification as books

from pgrouse.demo import worker_kill as death

from pgrouse.demo import input_files as directory

from pgrouse.demo import file_jobs as reading

from pgrouse.demo import latency as wake
from pgrouse.demo.alerts import Alerts
from pgrouse.demo.worker_kill import Death
from pgrouse.demo.input_files import Directory
from pgrouse.demo.run_folder import Folder
from pgrouse.demo.published import Published
from pgrouse.demo.report import Report
from pgrouse.demo.screen import Screen
from pgrouse.demo.environment import Stage, examples
from pgrouse.demo.latency import Silence, Wake
from pgrouse.demo.progress_watch import Watch
from pgrouse.demo.worker import Workers

CONFIG = examples() / "pgrouse.toml"
# The worker dies when a part of the files is done: it holds some of them, and others are left for who comes after.
KILL_AT = 0.25


@dataclass(frozen=True)
class Wish:
    """What the user asked for.

    Attributes:
        directory: whose files; None = the standard library.
        limit: at most so many files.
        dsn: a database of the user's; None = a private server.
        keep: leave everything running.
        spark: go on with the archive, on Spark.
    """

    directory: Path | None
    limit: int | None
    dsn: str | None
    keep: bool
    spark: bool = False


@dataclass(frozen=True)
class Events:
    """What happened."""

    files: Directory
    files_per_s: float
    pauses_s: list[float]
    killed: Death
    wake: Wake
    lost: Silence


def run(wish: Wish, screen: Screen) -> Report:
    """Run the demo; everything that it started has ended when it returns, unless it is to be kept."""
    began = time.monotonic()
    screen.tell("demo", "two daemons work through real files, and a few things are broken on purpose")
    with ExitStack() as ends:
        folder = ends.enter_context(Folder(wish.dsn))
        stage = _set_up(folder, ends.enter_context(Stage(wish.dsn, screen)))
        workers = ends.enter_context(Workers(stage.dsn, CONFIG, folder.path, keep=wish.keep, note=folder.note))
        alerts = Alerts(ends.enter_context(stage.connect()))
        watch = Watch(ends.enter_context(stage.connect()), Published(), workers, alerts, screen)
        told = _report(watch, wish, _play(watch, wish), stage, began)
        if wish.spark:
            told = replace(told, checks=[*told.checks, *pipeline.play(watch.conn, stage.dsn, screen)])
        _conclude(told, screen)
        if not told.balanced:
            folder.keep_logs = True
            screen.tell("logs", f"what the daemons said is in {folder.path}")
        address = dashboard.start(workers, CONFIG) if wish.keep else None
        if wish.keep:
            for each in (folder, workers, stage):
                each.keep()
    if wish.keep:
        hints.tell(stage.dsn, wish.dsn, folder.path, address, screen)
    return told


def stop(dsn: str | None, screen: Screen) -> None:
    """Stop what a demo with --keep, or one that was killed, has left running."""
    with Folder(dsn) as folder:
        if not folder.was_left:
            screen.tell("stop", "no demo was left running")
            return
        processes = folder.stop_daemons()
        stage = Stage(dsn, screen)
        stage.place.start()
        stage.clear_away()
        screen.tell(
            "stop",
            f"{processes} processes and {'the private server' if stage.is_private else 'the schemas of the demo'} are gone",
        )


def _set_up(folder: Folder, stage: Stage) -> Stage:
    """Make everything new and empty, whatever an earlier demo has left."""
    if folder.stop_daemons():
        stage.screen.tell("kept", "the daemons that an earlier demo had left running are stopped")
    folder.note([])
    stage.install()
    return stage


def _play(watch: Watch, wish: Wish) -> Events:
    """The story itself. Each act says what happened."""
    survivor, victim = watch.workers.start(), watch.workers.start()
    watch.screen.tell("workers", f"{survivor} and {victim} run {_short(CONFIG)}")
    files = directory.find(wish.directory, wish.limit)
    reading.publish(watch, files)
    retries.publish(watch)
    watch.until(lambda: watch.done >= KILL_AT * len(watch.published), "working through the files")
    killed = death.kill(watch, victim)
    watch.until(lambda: not watch.waiting, "working through the rest")
    files_per_s = reading.tell(watch, killed)
    pauses = retries.tell(watch)
    woken = wake.measure(watch)
    lost = wake.lose_notifications(watch, _poll())
    if not wish.keep:
        _stop_workers(watch)
    return Events(files, files_per_s, pauses, killed, woken, lost)


def _report(watch: Watch, wish: Wish, events: Events, stage: Stage, began: float) -> Report:
    watch.doing = "checking the books"
    checks = list(books.check(watch.conn, watch.published, events.files, events.killed, watch.alerts, watch.step))
    watch.count()
    return Report(
        database=str(stage.place),
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


def _conclude(told: Report, screen: Screen) -> None:
    screen.table(report.table(told.topics))
    for each in told.checks:
        screen.check(each.ok, each.text)
    verdict = "the books balance" if told.balanced else "THE BOOKS DO NOT BALANCE"
    screen.tell(
        "so",
        f"{verdict}; {told.took_s:.1f} s in all, first message done after {told.work_began_after_s:.1f} s",
        "bold green" if told.balanced else "bold red",
    )


def _stop_workers(watch: Watch) -> None:
    began = time.monotonic()
    names = " and ".join(each.name for each in watch.workers.running)
    in_order = watch.workers.stop()
    how = "drained and ended" if in_order else "did not end in order"
    watch.screen.tell(
        "stop", f"{names} {how} within {time.monotonic() - began:.1f} s of SIGTERM", "" if in_order else "red"
    )


def _poll() -> str:
    """Return how often the daemons look by themselves, as their configuration says it."""
    return str(tomllib.loads(CONFIG.read_text())["worker"]["poll"])


def _short(path: Path) -> str:
    """Return a path below the working directory relative to it."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
