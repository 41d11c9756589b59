"""docs/explanation/workflows.md: its examples do what the text describes."""

from __future__ import annotations

import json

from pgrouse import wait_for
from pgrouse.testing import drain
from tests.docs.conftest import RunPage
from tests.docs.page import Page
from tests.server.postgres import Database
from tests.sql.queue import Queue

PAGE = Page("docs/explanation/workflows.md")


def test_the_example_runs_in_the_documented_order(database: Database, run_page: RunPage) -> None:
    run_page(PAGE, 3)
    queue = Queue(database.connect())

    seen = []
    while claimed := queue.claim("order.check", "order.bill", "order.pack", "order.ship"):
        seen.append(sorted(c.topic for c in claimed))
        queue.settle("complete", claimed)

    assert seen == [["order.check"], ["order.bill", "order.pack"], ["order.ship"]]


def test_the_message_after_a_group_is_its_result(database: Database, run_page: RunPage) -> None:
    names = run_page(PAGE, 3)

    drain(database.dsn, {"page.count": names["page_count"], "book.count": names["book_count"]})
    result = wait_for(database.dsn, names["book"], 60)

    assert f"is `{json.dumps(result.output)}`" in PAGE.section("A group and its result").text


def test_every_option_in_the_text_exists(database: Database) -> None:
    rows = PAGE.section("If one of them ends badly").rows()

    assert [row[0].strip("`") for row in rows] == ["hold", "cancel", "run"]
