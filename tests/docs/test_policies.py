"""docs/reference/policies.md works, and has every policy."""

from __future__ import annotations

from itertools import pairwise

from pgrouse.config.policy.policy_settings import TopicPolicy
from tests.docs.conftest import RunPage
from tests.docs.page import Page
from tests.docs.psql import Psql, same

PAGE = Page("docs/reference/policies.md")


def test_the_sql_prints_the_output_on_the_page(psql: Psql) -> None:
    examples = [
        (block.line, block.text, after.text if after.line == block.end + 1 and after.kind == "text" else None)
        for block, after in pairwise(PAGE.blocks)
        if block.kind == "sql runnable"
    ]

    printed = [(line, same(psql.run(script))) for line, script, _ in examples]

    assert len(examples) > 10
    assert [each for each in printed if any(line.startswith("ERROR") for line in each[1])] == []
    assert [shown for shown, (_, _, text) in zip(printed, examples, strict=True) if text is not None] == [
        (line, same(text)) for line, _, text in examples if text is not None
    ]


def test_the_handlers_can_be_defined(run_page: RunPage) -> None:
    assert {"export", "load"} <= run_page(PAGE, 2).keys()


def test_every_setting_of_a_topic_is_on_the_page() -> None:
    # When publishes notify is not a policy of messages.
    missing = [setting for setting in TopicPolicy.names() if setting not in PAGE.text and setting != "notify"]

    assert missing == []


def test_every_policy_has_its_limit_and_links_to_the_details() -> None:
    sections = [PAGE.section(heading) for number, heading in PAGE.headings() if number > 1]

    without = [section.name for section in sections if "Limit: " not in section.text or "](" not in section.text]

    assert len(sections) == 18
    assert without == []
