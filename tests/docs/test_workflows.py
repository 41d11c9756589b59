"""docs/explanation/workflows.md: its example does what the text describes."""

from __future__ import annotations

from typing import Any

from tests.docs.page import Page
from tests.server.postgres import Database
from tests.sql.queue import Queue

PAGE = Page("docs/explanation/workflows.md")


def test_the_example_runs_in_the_documented_order(database: Database) -> None:
    names: dict[str, Any] = {"dsn": database.dsn}
    (example,) = [block for block in PAGE.blocks if block.kind == "python runnable"]
    queue = Queue(database.connect())

    exec(compile("\n" * example.line + example.text, PAGE.path, "exec"), names)
    seen = []
    while claimed := queue.claim("order.check", "order.bill", "order.pack", "order.ship"):
        seen.append(sorted(c.topic for c in claimed))
        queue.settle("complete", claimed)

    assert seen == [["order.check"], ["order.bill", "order.pack"], ["order.ship"]]


def test_every_option_in_the_text_exists(database: Database) -> None:
    rows = PAGE.section("If one of them ends badly").rows()

    assert [row[0].strip("`") for row in rows] == ["hold", "cancel", "run"]
