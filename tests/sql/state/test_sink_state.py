"""messages.sink_state: whether alerts reach a sink, and what waits for it."""

from __future__ import annotations

import pytest

from tests.sql.queue import Queue


@pytest.mark.parametrize(
    ("seen", "failing", "state", "error"),
    [
        ("59 s", "NULL", "ok", None),
        ("61 s", "NULL", "no deliverer", None),
        ("61 s", "messages.now()", "failing", "503"),
    ],
)
def test_a_sink_is_ok_as_long_as_it_is_served_and_accepts(
    queue: Queue, seen: str, failing: str, state: str, error: str | None
) -> None:
    queue.later("0")
    queue.conn.execute(
        f"""INSERT INTO messages.alert_sink (name, type, last_error, seen_at, failing_since)
            VALUES ('ops', 'webhook', '503', messages.now() - interval '{seen}', {failing})""".encode()
    )

    row = queue.row("SELECT * FROM messages.sink_state")

    assert (row.state, row.last_error, row.waiting, row.abandoned, row.age) == (state, error, 0, 0, None)


def test_a_sink_has_the_number_of_what_waits_and_of_what_was_given_up(queue: Queue) -> None:
    queue.conn.execute("INSERT INTO messages.alert_sink (name, type, delivered_at) VALUES ('ops', 'webhook', now())")
    queue.conn.execute(
        """INSERT INTO messages.alert_delivery
        (sink, message, rules, grouped, first_alert_id, last_alert_id, delivered_at, abandoned_at)
           VALUES ('ops', '{}', '{}', '{}', 1, 1, NULL, NULL), ('ops', '{}', '{}', '{}', 1, 1, now(), NULL),
                  ('ops', '{}', '{}', '{}', 1, 1, NULL, now())"""
    )

    row = queue.row("SELECT * FROM messages.sink_state")

    assert (row.waiting, row.abandoned, row.waiting_since is not None, row.age is not None) == (1, 1, True, True)
