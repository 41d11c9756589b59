"""A module whose import never ends in a process that a supervisor has started."""

import os
import time
from pathlib import Path

if "PGROUSE_PROCESS" in os.environ:
    with Path(os.environ["JOURNAL"]).open("a") as journal:
        journal.write(f'{{"what": "imports", "pid": {os.getpid()}}}\n')
    time.sleep(3600)


def work(payload, ctx):
    """Never called."""
