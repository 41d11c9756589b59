"""A demo whose books do not balance reports it."""

from __future__ import annotations

import json
from collections.abc import Callable

import psycopg
import pytest

from tests.demo.process import Demo
from tests.server.postgres import Database

pytestmark = pytest.mark.slow


@pytest.mark.long
def test_a_changed_digest_is_found_and_the_demo_exits_with_1(
    demo: Callable[..., Demo], empty_database: Database, eventually: Callable[..., int]
) -> None:
    run = demo("--json")
    conn = empty_database.connect()

    def change_a_digest() -> int:
        try:
            return conn.execute(
                "UPDATE demo.file SET sha256 = sha256('') WHERE path LIKE '%/text-7' AND times_stored = 1"
            ).rowcount
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return 0

    assert eventually(change_a_digest, within_s=60) == 1

    assert run.end() == 1
    report = json.loads(run.out)
    assert report["balanced"] is False
    (wrong,) = [check for check in report["checks"] if not check["ok"]]
    assert wrong["name"] == "files"
    assert wrong["text"].endswith("/text-7")
    assert "SOME CHECKS FAILED" in run.err
