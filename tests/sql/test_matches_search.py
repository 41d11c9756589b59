"""messages.matches_search: a message must match all filters of a search."""

from __future__ import annotations

from typing import Any

from tests.sql.queue import Queue

FITS = """
    SELECT messages.matches_search(
      (%(topic)s, %(may)s, %(states)s, NULL, NULL, %(error)s, NULL, %(path)s::jsonpath, '{}', %(headers)s::jsonb, %(worker)s, %(attempts)s, NULL, NULL)::messages.search,
      'mail.send', 'failed', NULL, NULL, 'Disk full', NULL, '{"a": 1}',
      '{"tenant": "acme", "n": 7}', 'app:1/0', 2)
"""


NAMES = ("topic", "may", "states", "error", "path", "headers", "worker", "attempts")


def fits(queue: Queue, **filters: Any) -> Any:
    return queue.value(FITS, dict.fromkeys(NAMES) | filters)


def test_without_filters_everything_matches(queue: Queue) -> None:
    assert fits(queue) is True


def test_all_filters_must_match(queue: Queue) -> None:
    assert fits(queue, topic="mail.send", states=["failed"], error="disk", path="$.a", may=["mail.%"]) is True
    assert fits(queue, topic="mail.send", states=["ready"]) is False
    assert fits(queue, may=["sms.%"]) is False
    assert fits(queue, path="$.b") is False
    assert fits(queue, headers='{"tenant": "acme"}', worker="app:1", attempts=2) is True
    assert fits(queue, worker="app:1/0", attempts=1) is True
    assert fits(queue, headers='{"tenant": "acme", "n": 8}') is False
    assert fits(queue, worker="app") is False
    assert fits(queue, attempts=3) is False


def test_a_path_that_fails_on_a_payload_does_not_match(queue: Queue) -> None:
    assert fits(queue, path="strict $.a.b.c") in (False, None)
