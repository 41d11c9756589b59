"""The watch of `pgrouse run --reload`, in this process."""

from __future__ import annotations

import queue
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("watchfiles")

from pgrouse.process import stop_signals
from pgrouse.process.file_watch import FileWatch

SIGHUP_WAIT_S = 60
# Long enough for a signal that must not come: the watch looks every 50 ms.
SILENCE_S = 0.5


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(stop_signals, "_state", stop_signals._State())
    before = {each: signal.getsignal(each) for each in stop_signals.STOP_SIGNALS}
    yield
    for each, handler in before.items():
        signal.signal(each, handler)


def take_signals() -> queue.SimpleQueue[int]:
    # A plain queue.Queue can deadlock: the handler may run while this thread holds its lock, in `get`.
    taken: queue.SimpleQueue[int] = queue.SimpleQueue()
    stop_signals.deliver_to(taken.put)
    return taken


def replace(path: Path, text: str) -> None:
    """Write a file as editors do: a new one in the place of the old."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


def test_a_change_right_after_the_start_is_seen(tmp_path: Path) -> None:
    watch = FileWatch([tmp_path], None)
    (tmp_path / "shop.py").write_text("1")
    watch.wait()


def test_a_change_before_the_process_takes_the_signal_is_not_lost(tmp_path: Path) -> None:
    watch = FileWatch([tmp_path], None)
    (tmp_path / "shop.py").write_text("1")
    watch.wait()
    taken = take_signals()
    assert taken.get(timeout=SIGHUP_WAIT_S) == signal.SIGHUP


def test_a_file_that_is_replaced_stays_watched(tmp_path: Path) -> None:
    file = tmp_path / "pgrouse.toml"
    file.write_text("0")
    FileWatch([], file)
    taken = take_signals()
    for text in "123":
        replace(file, text)
        taken.get(timeout=SIGHUP_WAIT_S)


def test_only_sources_and_the_file_count(tmp_path: Path) -> None:
    code, etc = tmp_path / "code", tmp_path / "etc"
    (code / "node_modules").mkdir(parents=True)
    (etc / "below").mkdir(parents=True)
    # Its signal is not expected: a watch of another test may still send one.
    watch = FileWatch([code], etc / "pgrouse.toml")
    for other in ("code/log", "code/node_modules/a.py", "etc/other.toml", "etc/below/pgrouse.toml"):
        (tmp_path / other).write_text("1")
    assert not watch._has_change.wait(SILENCE_S)


def test_a_log_that_is_written_all_the_time_holds_nothing_up(tmp_path: Path) -> None:
    is_over = threading.Event()

    def write_log() -> None:
        with (tmp_path / "log").open("a") as log:
            while not is_over.wait(0.001):
                log.write("line\n")
                log.flush()

    writer = threading.Thread(target=write_log)
    writer.start()
    try:
        FileWatch([tmp_path], None)
        taken = take_signals()
        (tmp_path / "shop.py").write_text("1")
        taken.get(timeout=SIGHUP_WAIT_S)
    finally:
        is_over.set()
        writer.join()
