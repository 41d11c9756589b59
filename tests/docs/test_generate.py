"""The reference is generated from what it describes.

A contract that lacks a part is named, and text written by hand stays.
"""

from __future__ import annotations

import click
import pytest
from docs import command_line, contracts, generate

HEAD = """-- Returns how many a topic has.
--
-- Arguments: `p_topic`: which one.
-- Errors: 22023 for a topic that has no name.
-- Locks: none.
-- Called by: operators.
-- Inside: it reads `messages.topic` once.
"""
BODY = """CREATE OR REPLACE FUNCTION messages.count_of(p_topic text)
RETURNS bigint
LANGUAGE plpgsql
AS $$
BEGIN
  -- Never: RAISE EXCEPTION USING ERRCODE = '42501';
  RAISE EXCEPTION 'topic is NULL' USING ERRCODE = '22023';
END
$$;
"""


def test_the_pages_are_what_is_generated_now() -> None:
    assert list(generate.stale()) == []


def test_the_head_of_every_granted_function_has_all_parts() -> None:
    assert contracts.problems() == []


def test_a_complete_head_has_no_problems() -> None:
    assert list(contracts.contract("count_of", HEAD + BODY).problems()) == []


@pytest.mark.parametrize("part", ["Errors", "Locks", "Called by"])
def test_a_part_that_is_missing_or_empty_is_named(part: str) -> None:
    lines = [line for line in HEAD.splitlines(keepends=True) if not line.startswith(f"-- {part}: ")]

    for head in ("".join(lines), f"{''.join(lines)}-- {part}: \n"):
        assert f"has no part `{part}:`" in list(contracts.contract("count_of", head + BODY).problems())


def test_the_result_is_a_part_unless_the_first_sentence_returns_it_or_there_is_none() -> None:
    head = HEAD.replace("Returns how many", "Counts what")

    assert list(contracts.contract("count_of", head + BODY).problems()) == ["has no part `Result:`"]
    assert list(contracts.contract("count_of", head + BODY.replace("bigint", "void")).problems()) == []


def test_an_error_that_a_function_raises_and_does_not_name_is_named() -> None:
    head = HEAD.replace("22023 for a topic that has no name", "none")

    assert list(contracts.contract("count_of", head + BODY).problems()) == ["does not name the error 22023"]


def test_a_head_begins_with_what_the_function_does() -> None:
    head = HEAD.partition("--\n")[2]

    for each in (head, ""):
        problems = list(contracts.contract("count_of", each + BODY).problems())
        assert "does not begin with what the function does" in problems


def test_a_section_has_the_parts_for_callers_and_links_to_the_sections_of_others() -> None:
    written = contracts.section(contracts.contract("count_of", HEAD + BODY), ["operator"], {"count_of", "topic"})

    assert (
        written
        == """```sql
messages.count_of(p_topic text)
RETURNS bigint
```

Returns how many a topic has.

- **Arguments.** `p_topic`: which one. **Errors.** 22023 for a topic that has no name. **Rights.** `operator`.
"""
    )


def test_what_is_below_a_heading_of_its_own_is_written_by_hand() -> None:
    page = generate.REFERENCE.joinpath("protocol.md").read_text()
    by_hand = "#### Keep the archive of a topic for hours\n\nA topic's `retention` drops whole days."
    stale = page.replace("Deletes messages that ended before a given time", "Deletes some messages")

    assert by_hand in stale != page
    assert contracts.written(stale) == page


def test_the_row_of_an_option_says_what_its_help_says() -> None:
    @click.command()
    @click.option("-t", "--topic", multiple=True, required=True, help="Only these, as in worker.topics.")
    @click.option(
        "--state", type=click.Choice(["ready", "dead"]), default="ready", show_default=True, help="Only this."
    )
    @click.option("--limit", type=click.IntRange(1, 9), help="At most this many. [default: 5]")
    @click.option("--all", is_flag=True, help="Without --limit.")
    @click.option("--json", is_flag=True)
    def command() -> None:
        pass

    assert list(command_line.rows(command)) == [
        "| `-t TOPIC`, `--topic TOPIC` | Only these, as in `worker.topics`. May be given several times. Required. |",
        r"| `--state ready\|dead` | Only this. Default: `ready`. |",
        "| `--limit N` | At most this many. Default: `5`. From 1 to 9. |",
        "| `--all` | Without `--limit`. |",
    ]


def test_a_command_without_a_section_is_named() -> None:
    page = generate.REFERENCE.joinpath("cli.md").read_text().replace("## `pgrouse audit`", "## Who did what")

    with pytest.raises(click.ClickException, match="no section of pgrouse audit"):
        command_line.written(page)
