"""What the tests of the documentation begin with."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.docs.psql import Psql


@pytest.fixture
def psql(db: psycopg.Connection[Any]) -> Psql:
    """A session of the superuser in a new database, in which the numbers of claims are drawn as the pages show them."""
    db.execute("SELECT setseed(0.5)")
    return Psql(db)
