"""Whether a process lives."""

from __future__ import annotations

import subprocess
from pathlib import Path


def lives(pid: int) -> bool:
    """Whether a process runs. One that has ended and was not waited for does not."""
    stat = Path(f"/proc/{pid}/stat")
    if not Path("/proc/self/stat").exists():
        return subprocess.run(["ps", "-p", str(pid)], capture_output=True, check=False).returncode == 0
    try:
        return stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it ended before the file was opened, or before it was read
        return False
