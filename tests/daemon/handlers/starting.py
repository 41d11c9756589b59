"""Handlers that start processes of their own and end them by SIGTERM."""

import multiprocessing
import signal
import subprocess
import sys
import time

from work import write

ENDED = -signal.SIGTERM


def end_own_processes(payload, ctx):
    """End one that was executed, and a pool of those that were forked: it waits for them."""
    executed = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"], stdout=subprocess.PIPE
    )
    executed.stdout.readline()
    executed.terminate()
    forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=[600])
    forked.start()
    forked.terminate()
    forked.join()
    write("ended", ctx, codes=[executed.wait(), forked.exitcode])
