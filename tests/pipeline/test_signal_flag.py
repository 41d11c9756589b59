"""A flag that a signal sets, at whatever step of the wait the signal comes."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

from pyspark_pgrouse.claim.signal_flag import SignalFlag

# How many steps of Python a wait takes until it begins its second round, and more.
STEPS = 40
# Sends this process the signal at the n-th step that it takes in the wait, in turn for each n.
PROGRAM = f"""
import os, signal, sys
from pyspark_pgrouse.claim.signal_flag import SignalFlag

def signal_at(step):
    left = step

    def trace(frame, event, arg):
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return trace

    return trace

for step in range(1, {STEPS}):
    flag = SignalFlag()
    signal.signal(signal.SIGTERM, lambda *_: flag.set())
    sys.settrace(signal_at(step))
    was_set = flag.wait(60)
    sys.settrace(None)
    assert was_set, step
print("done")
"""


@pytest.mark.long
def test_a_signal_at_any_step_of_a_wait_ends_it() -> None:
    ran = subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=120, capture_output=True, text=True)

    assert ran.stdout == "done\n"


def test_another_thread_ends_a_wait() -> None:
    flag = SignalFlag()
    threading.Timer(0.1, flag.set).start()

    assert flag.wait(60)


def test_a_wait_ends_without_a_signal() -> None:
    assert not SignalFlag().wait(0.05)
