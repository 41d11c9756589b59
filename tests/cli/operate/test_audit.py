"""`pgrouse audit`: the actions of operators."""

from __future__ import annotations

import json

from tests.cli.shell import Shell
from tests.sql.queue import Queue


def test_actions_are_listed_latest_first(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("mail", max_attempts=3)
    pgrouse("topic", "pause", "mail", "--reason", "the relay is down")

    run = pgrouse("audit")

    paused, changed = run.out.splitlines()[1:]
    assert all(word in paused for word in ("pause", "mail", "reason the relay is down"))
    assert all(word in changed for word in ("set_policy", "mail", "max_attempts - -> 3"))


def test_as_json_each_action_is_an_object(pgrouse: Shell, queue: Queue) -> None:
    published = queue.publish("mail")
    pgrouse("message", "cancel", str(published), "--reason", "by mistake")

    (action,) = [json.loads(line) for line in pgrouse("audit", "--json").out.splitlines()]

    assert (action["action"], action["topic"], action["target"]) == ("cancel", "mail", str(published))
    assert action["detail"] == {"count": 1, "reason": "by mistake"}


def test_filters_narrow_the_list(pgrouse: Shell, queue: Queue) -> None:
    with queue.conn.transaction():
        queue.conn.execute("SELECT set_config('messages.actor', 'ops', true)")
        queue.call("pause", "mail")
    queue.call("pause", "orders")
    queue.call("cancel", [queue.publish("mail"), queue.publish("orders")])

    def actions(*options: str) -> list[str]:
        return [json.loads(line)["action"] for line in pgrouse("audit", "--json", *options).out.splitlines()]

    assert actions("--topic", "mail") == ["cancel", "pause"]
    assert actions("--actor", "ops") == ["pause"]
    assert actions("--since", "1h", "--limit", "1") == ["cancel"]
    assert actions("--before", "2") == ["pause"]


def test_an_empty_log_is_reported(pgrouse: Shell) -> None:
    run = pgrouse("audit")

    assert (run.out, run.err) == ("", "no actions\n")
