"""pgrouse.web.page.formatting.cron_words: a cron expression for people."""

from __future__ import annotations

import pytest

pytest.importorskip("fastapi")

from pgrouse.web.page.formatting import cron_words


@pytest.mark.parametrize(
    ("cron", "words"),
    [
        ("0 7 * * *", "At 07:00"),
        ("30 8 * * 1-5", "At 08:30, Monday through Friday"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("0 */6 * * *", "Every 6 hours"),
        ("0 0 1 * *", "At 00:00, on day 1 of the month"),
        ("0 0 7 * * *", "At 07:00"),
        ("15 30 8 * * 1-5", "At 08:30:15, Monday through Friday"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("* * * * * *", "Every second"),
        ("15 */5 * * * *", "At 15 seconds past the minute, every 5 minutes"),
        ("30 seconds", "Every 30 seconds"),
        ("1 second", "Every second"),
        # Either of the days, as cron has it.
        ("0 7 1,15 * fri", "At 07:00, on day 1 and 15 of the month, or on Friday"),
    ],
)
def test_it_says_when(cron: str, words: str) -> None:
    assert cron_words(cron) == words


@pytest.mark.parametrize(
    "cron",
    [
        "*/40 * * * *",
        "*/40 * * * * *",
        "0 0 */5 * * *",
        "0 */5 * * *",
        "0 0 */2 * *",
        "0 9-17/2 * * *",
        "*/0 * * * *",
        "*,5 * * * *",
    ],
)
def test_steps_that_do_not_go_around_have_no_words(cron: str) -> None:
    """`*/40` is at minute 0 and 40, which is not every 40 minutes."""
    assert cron_words(cron) == ""


@pytest.mark.parametrize("cron", ["@daily", "", "a b c d e", "99 99 99 99 99", "1 2 3 4 5 6 7"])
def test_what_has_no_words_has_none(cron: str) -> None:
    assert cron_words(cron) == ""
