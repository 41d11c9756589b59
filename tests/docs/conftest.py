"""Fixtures for the tests of the documentation."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.docs.psql import Psql


@pytest.fixture
def psql(db: psycopg.Connection[Any]) -> Psql:
    """A session of the superuser in a new database, in which the claim ids are those of the pages."""
    db.execute("SELECT setseed(0.5)")
    return Psql(db)
