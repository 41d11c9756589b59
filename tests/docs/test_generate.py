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


def without(part: str) -> str:
    """Return the head without one of its parts."""
    return "".join(line for line in HEAD.splitlines(keepends=True) if not line.startswith(f"-- {part}: "))


COUNTS = HEAD.replace("Returns how many", "Counts what")


@pytest.mark.parametrize(
    ("source", "problems"),
    [
        (HEAD + BODY, []),
        *((without(part) + BODY, [f"has no part `{part}:`"]) for part in ("Locks", "Called by")),
        (without("Errors") + BODY, ["has no part `Errors:`", "does not name the error 22023"]),
        (without("Locks") + "-- Locks: \n" + BODY, ["has no part `Locks:`"]),
        (COUNTS + BODY, ["has no part `Result:`"]),
        (COUNTS + BODY.replace("bigint", "void"), []),
        (HEAD.replace("22023 for a topic that has no name", "none") + BODY, ["does not name the error 22023"]),
        (
            HEAD.partition("--\n")[2] + BODY,
            ["does not begin with what the function does", "has no part `Result:`"],
        ),
    ],
)
def test_a_head_that_lacks_a_part_or_an_error_is_named(source: str, problems: list[str]) -> None:
    assert list(contracts.contract("count_of", source).problems()) == problems


def test_what_is_below_a_heading_of_its_own_is_written_by_hand() -> None:
    page = generate.REFERENCE.joinpath("protocol.md").read_text()
    by_hand = "#### Keep the archive of a topic for hours\n\nA topic's `retention` drops whole days."
    stale = page.replace("Deletes messages that ended before a given time", "Deletes some messages")

    assert by_hand in stale != page
    assert contracts.written(stale) == page


def test_a_command_without_a_section_is_named() -> None:
    page = generate.REFERENCE.joinpath("cli.md").read_text().replace("## `pgrouse audit`", "## Who did what")

    with pytest.raises(click.ClickException, match="no section of pgrouse audit"):
        command_line.written(page)
