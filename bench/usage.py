"""The CPU and memory of processes and of the machine, from /proc."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from pathlib import Path

# The machine is quiet while other processes use at most this share of all its cores.
QUIET_SHARE = 0.1


def cpu_s(*pids: int) -> float:
    """Return the seconds of CPU of all threads of these processes, to the nanosecond.

    The usual counters tick each 10 ms.
    """
    total = 0
    for thread in (thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()):
        with suppress(FileNotFoundError, ProcessLookupError):
            total += int((thread / "schedstat").read_text().split()[0])
    return total / 1e9


def children_cpu_s() -> float:
    """Return the seconds of CPU of the ended children of this process."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def family_cpu_s(pid: int) -> float:
    """Return the seconds of CPU of a process and its children, running or ended: in ticks of about 10 ms each."""
    ticks = sum(_stat(pid)[11:15])
    for child in family_pids(pid)[1:]:
        with suppress(FileNotFoundError, ProcessLookupError):
            ticks += sum(_stat(child)[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def family_pids(pid: int) -> list[int]:
    """Return the ids of a process and of its running children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process, in MiB."""
    return _status_kib(pid, "VmRSS") / 1024


def peak_rss_mib(pid: int) -> float:
    """Return the maximum resident memory of a process, in MiB."""
    return _status_kib(pid, "VmHWM") / 1024


class Machine:
    """Watches the other load of the machine: a benchmark's runs begin when it is low.

    Args:
        wait_s: the longest time to wait for that; then a run begins nevertheless.

    Attributes:
        busy: the load, as a share of all cores, in the second before each run.
    """

    def __init__(self, wait_s: float) -> None:
        self._wait_s = wait_s
        self.busy: list[float] = []

    def wait_until_quiet(self) -> None:
        """Wait until other processes use hardly any CPU, or for long enough."""
        give_up_at = time.monotonic() + self._wait_s
        share = _busy_share(1.0)
        while share > QUIET_SHARE and time.monotonic() < give_up_at:
            share = _busy_share(1.0)
        self.busy.append(share)

    def __str__(self) -> str:
        disturbed = sum(share > QUIET_SHARE for share in self.busy)
        noise = f"{disturbed} of {len(self.busy)} runs began while others used more than {QUIET_SHARE:.0%} of it"
        return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; " + (
            noise if disturbed else "quiet at every start"
        )


def _busy_share(seconds: float) -> float:
    """Return the share of all cores that is used in the seconds from now."""
    idle, total = _jiffies()
    time.sleep(seconds)
    idle_after, total_after = _jiffies()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def _jiffies() -> tuple[int, int]:
    """Return the idle and the whole time of all cores since the start, in ticks."""
    numbers = [int(number) for number in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return numbers[3] + numbers[4], sum(numbers)


def _stat(pid: int) -> list[int]:
    """Return the numbers of a process's line in /proc, from its parent's id (index 1) on."""
    # The name before them may contain anything but is in parentheses; the state after it is a letter.
    return [0, *map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1:])]


def _status_kib(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))
