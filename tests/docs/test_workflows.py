"""docs/explanation/workflows.md: its examples do what the text describes."""

from __future__ import annotations

import json
from typing import Any

from pgrouse import wait_for
from pgrouse.testing import drain
from tests.docs.page import Page
from tests.server.postgres import Database
from tests.sql.queue import Queue

PAGE = Page("docs/explanation/workflows.md")
EXAMPLES = [block for block in PAGE.blocks if block.kind == "python runnable"]


def test_the_example_runs_in_the_documented_order(database: Database) -> None:
    names: dict[str, Any] = {"dsn": database.dsn}
    example = EXAMPLES[0]
    queue = Queue(database.connect())

    exec(compile("\n" * example.line + example.text, PAGE.path, "exec"), names)
    seen = []
    while claimed := queue.claim("order.check", "order.bill", "order.pack", "order.ship"):
        seen.append(sorted(c.topic for c in claimed))
        queue.settle("complete", claimed)

    assert seen == [["order.check"], ["order.bill", "order.pack"], ["order.ship"]]


def test_the_message_after_a_group_is_its_result(database: Database) -> None:
    names: dict[str, Any] = {"dsn": database.dsn}
    for example in EXAMPLES:
        exec(compile("\n" * example.line + example.text, PAGE.path, "exec"), names)

    drain(database.dsn, {"page.count": names["page_count"], "book.count": names["book_count"]})
    result = wait_for(database.dsn, names["book"], 60)

    assert f"is `{json.dumps(result.output)}`" in PAGE.section("A group and its result").text


def test_every_option_in_the_text_exists(database: Database) -> None:
    rows = PAGE.section("If one of them ends badly").rows()

    assert [row[0].strip("`") for row in rows] == ["hold", "cancel", "run"]
