"""The start of a storm: a server that may be stopped, crashed and killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.faults.logs import LOGGING
from tests.faults.system import System, system
from tests.server.postgres import Postgres
from tests.server.servers import Missing, Servers


@pytest.fixture(scope="module")
def shaken_server(session_servers: Servers) -> Iterator[Postgres]:
    """A server for these tests alone."""
    try:
        with session_servers.private_server(**LOGGING) as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def new_system(shaken_server: Postgres, tmp_path: Path) -> Callable[..., AbstractContextManager[System]]:
    """`with new_system() as system` starts a system under test."""
    return partial(system, shaken_server, tmp_path)
