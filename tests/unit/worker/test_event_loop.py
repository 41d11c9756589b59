"""Which event loop a daemon runs on."""

from __future__ import annotations

import sys
from contextlib import closing

import pytest

from pgrouse.process.event_loop import new_event_loop


@pytest.mark.skipif(sys.platform == "win32", reason="there is no uvloop for Windows")
def test_a_daemon_runs_on_uvloop_if_it_is_installed() -> None:
    with closing(new_event_loop()) as loop:
        assert type(loop).__module__ == "uvloop"
