"""The start of a storm: a server that may be stopped, crashed and killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from tests.faults.scene import Scene, scene
from tests.server.ground import Ground, Missing
from tests.server.postgres import Postgres


@pytest.fixture(scope="module")
def shaken_server(session_ground: Ground) -> Iterator[Postgres]:
    """A server for these tests alone."""
    try:
        with session_ground.private_server() as server:
            yield server
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def new_scene(shaken_server: Postgres, tmp_path: Path) -> Callable[..., AbstractContextManager[Scene]]:
    """`with new_scene() as scene` makes a scene."""
    return partial(scene, shaken_server, tmp_path)
