"""A daemon process for tests: its configuration, its log, and the journal that its handlers write."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sysconfig
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.daemon.preloaded import Forked
from tests.server.deadline import eventually

PGROUSE = Path(sysconfig.get_path("scripts")) / "pgrouse"
HANDLERS = Path(__file__).parent / "handlers"

# Long where only a lost notification would show, or where a pause of the machine would change the result; short
# where a test would only wait.
WORKER = {
    "name": "d",
    "poll_interval": "10m",
    "degraded_poll_interval": "0.3s",
    "maintenance_interval": "0.2s",
    "shutdown_timeout": "30s",
}
# A notified message arrives within milliseconds, on a busy machine within a second or two. Any other message is found
# after ten seconds, when the tick notifies again.
AT_ONCE_S = 8.0


class Journal:
    """The entries of handlers: one per line, from any number of processes, in the order of their writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def entries(self, what: str | None = None, message_id: int | None = None) -> list[dict[str, Any]]:
        """Return the entries of a kind, of a message, or both."""
        found = [json.loads(line) for line in _lines(self.path)]
        return [e for e in found if what in (None, e["what"]) and message_id in (None, e.get("id"))]

    def entry(self, what: str, message_id: int | None = None) -> dict[str, Any]:
        """Wait for the first entry of a kind and return it."""
        return eventually(lambda: self.entries(what, message_id))[0]


Begin = Callable[..., "Forked | subprocess.Popen[bytes]"]


def execute(program: Path, *arguments: str, cwd: Path, env: Mapping[str, str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program as users do, not as a fork."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [program, *arguments],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


class Daemon:
    """One `pgrouse run` with its own folder.

    Args:
        folder: for its configuration, its log and its gates.
        journal: the file that its handlers write.
        settings: the configuration, by section; `topics` maps a topic to the name of its handler, or to its whole
            table.
        environ: further environment variables.
        begin: starts the process.
        arguments: of `pgrouse run`.
    """

    def __init__(
        self,
        folder: Path,
        journal: Journal,
        settings: Mapping[str, Any],
        environ: Mapping[str, str] | None = None,
        begin: Begin = Forked,
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.folder, self.journal = folder, journal
        self.log = folder / "log"
        self.configure(settings)
        env = {**os.environ, "JOURNAL": str(journal.path), "GATES": str(folder), **(environ or {})}
        self.process = begin(PGROUSE, "run", *arguments, cwd=folder, env=env, log=self.log)
        self.pid = self.process.pid

    def configure(self, settings: Mapping[str, Any]) -> None:
        """Write the configuration."""
        topics = {
            topic: chosen if isinstance(chosen, dict) else {"handler": chosen}
            for topic, chosen in settings.get("topics", {}).items()
        }
        (self.folder / "pgrouse.toml").write_text(
            _toml(
                {
                    "database": settings["database"],
                    "worker": {**WORKER, **settings.get("worker", {})},
                    "handlers": {"import_path": [str(HANDLERS), str(self.folder)]},
                    "log": {"format": "json", "level": settings.get("log_level", "info")},
                    **{f'topics."{topic}"': chosen for topic, chosen in topics.items()},
                    **settings.get("sections", {}),
                }
            )
        )

    def open_gate(self, name: str = "gate") -> None:
        """Open a gate that handlers wait for."""
        (self.folder / name).touch()

    def events(self, name: str, **fields: Any) -> list[dict[str, Any]]:
        """Return the events of this name that were logged with these fields."""
        return [e for e in self.logged() if e["event"] == name and fields.items() <= e.items()]

    def event(self, name: str, within_s: float = 60, **fields: Any) -> dict[str, Any]:
        """Wait for the first such event and return it."""
        return eventually(lambda: self.events(name, **fields), within_s)[0]

    def logged(self) -> list[dict[str, Any]]:
        """Return everything that was logged; a line that is not JSON has the event 'plain'."""
        return [_event(line) for line in _lines(self.log)]

    def send(self, which: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(which)

    def stop(self, within_s: float = 60) -> int:
        """Stop it with SIGTERM and return its exit code."""
        self.send(signal.SIGTERM)
        return self.exit_code(within_s)

    def exit_code(self, within_s: float = 60) -> int:
        """Wait for its end and return its exit code."""
        return self.process.wait(within_s)

    def kill(self) -> None:
        """Kill it with -9, and its children; return when it has ended."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait(30)

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process.poll() is None

    def cpu_s(self) -> float:
        """Return how much processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_mb(self) -> float:
        """Return how much memory it has, in megabytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


class Fleet:
    """The daemons of one test, with one journal. begin: starts their processes."""

    def __init__(self, folder: Path, begin: Begin = Forked) -> None:
        self.folder, self.begin = folder, begin
        self.journal = Journal(folder / "journal")
        self.daemons: list[Daemon] = []

    def launch(
        self,
        topics: Mapping[str, Any],
        *,
        dsn: str,
        database: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        log_level: str = "info",
        sections: Mapping[str, Any] | None = None,
        arguments: tuple[str, ...] = (),
        **worker: Any,
    ) -> Daemon:
        """Start a daemon and return at once.

        sections: further tables of its configuration; arguments: of `pgrouse run`.
        """
        folder = self.folder / f"daemon-{len(self.daemons) + 1}"
        folder.mkdir()
        settings = {
            "topics": topics,
            "database": {"dsn": dsn, **(database or {})},
            "worker": worker,
            "log_level": log_level,
            "sections": sections or {},
        }
        self.daemons.append(Daemon(folder, self.journal, settings, environ, self.begin, arguments))
        return self.daemons[-1]

    def start(self, conn: psycopg.Connection[Any], topics: Mapping[str, Any], **settings: Any) -> Daemon:
        """Start a daemon and return when it is armed."""
        daemon = self.launch(topics, **settings)
        until_armed(conn, daemon)
        return daemon

    def kill(self) -> None:
        """Kill all of them."""
        for daemon in self.daemons:
            daemon.kill()


ARMED = "SELECT FROM messages.sleeper WHERE split_part(worker, ':', 2) = %s AND armed_until > clock_timestamp()"


def is_armed(conn: psycopg.Connection[Any], daemon: Daemon) -> bool:
    """Whether a publish would notify this daemon."""
    return conn.execute(ARMED, [str(daemon.pid)]).rowcount > 0


def until_armed(conn: psycopg.Connection[Any], daemon: Daemon) -> None:
    """Wait until this daemon is armed."""

    def sleeps() -> bool:
        if not daemon.alive:
            pytest.fail(f"the daemon has ended: {daemon.log.read_text()}")
        return is_armed(conn, daemon)

    eventually(sleeps, within_s=60)


def end_locks(conn: psycopg.Connection[Any], daemon: Daemon, after: str = "0 s") -> list[float]:
    """Let the locks of a killed daemon expire, now or after a delay, and return when they do.

    No process can extend them any more.

    Their length has no effect before that: a short lock might expire while the daemon is still alive.
    """
    its = f"%:{daemon.pid}:%"
    connections = "SELECT FROM pg_stat_activity WHERE application_name LIKE %s"
    eventually(lambda: not conn.execute(connections, [its]).rowcount)
    query = """
        UPDATE messages.message SET lock_expires_at = clock_timestamp() + %s::interval WHERE locked_by LIKE %s
        RETURNING extract(epoch FROM lock_expires_at)::float
    """
    return sorted(at for (at,) in conn.execute(query, [after, its]))


def now() -> float:
    """Return the clock of the journal: monotonic, the same in all processes."""
    return time.monotonic()


def _lines(path: Path) -> list[str]:
    """Return the complete lines: the last one may be incomplete."""
    return path.read_text().rpartition("\n")[0].splitlines()


def _event(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) and "event" in found else {"event": "plain", "text": line}


def _toml(sections: Mapping[str, Mapping[str, Any]]) -> str:
    """Write tables of plain values; JSON and TOML write these alike."""
    return "".join(
        f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())
        for name, values in sections.items()
    )
