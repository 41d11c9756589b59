"""docs/explanation/batches.md: its example does what the text describes."""

from __future__ import annotations

import pytest

from tests.docs.conftest import RunPage
from tests.docs.page import Page
from tests.server.postgres import Database
from tests.sql.queue import Queue

PAGE = Page("docs/explanation/batches.md")


def test_the_example_fills_and_closes_a_batch(
    database: Database, run_page: RunPage, capsys: pytest.CaptureFixture[str]
) -> None:
    run_page(PAGE, 1)
    queue = Queue(database.connect())

    assert "closed: 0 of 1000 have ended" in capsys.readouterr().out
    while claimed := queue.claim("import.order"):
        queue.settle("complete", claimed)
    (told,) = queue.claim("import.finished")
    assert '"file": "orders.csv"' in told.payload
