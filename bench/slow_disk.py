"""A disk with slow flushes, for a private server on a machine whose flushes are too fast."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_name("slow_disk.c")


@contextmanager
def library(flush_ms: float | None) -> Iterator[Path | None]:
    """Compile the library that makes flushes slow, and keep it while the server runs; None if it is not requested."""
    if not flush_ms:
        yield None
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # the server runs as another user
        made = Path(folder) / "slow_disk.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", str(made), str(SOURCE), "-ldl"], check=True)
        # The server gets no variable that begins with PG.
        os.environ["SLOW_DISK_FLUSH_US"] = str(round(flush_ms * 1000))
        yield made
