"""pgrouse alert: output and exit codes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell
from tests.daemon.receiver import Receiver
from tests.sql.queue import Queue
from tests.sql.sinks import Sink, raise_alert


@pytest.fixture
def two_sinks(folder: Path, receiver: Receiver) -> None:
    """A configuration with the sinks `ops`, which answers, and `gone`, which does not."""
    (folder / "pgrouse.toml").write_text(
        f'[[alerts.to]]\nname = "ops"\nwebhook = "{receiver.url()}"\ntitle = "{{{{topic}}}}!"\n'
        '[[alerts.to]]\nname = "gone"\ncommand = ["false"]\n'
    )


# test


@pytest.mark.usefixtures("two_sinks")
def test_alert_test_sends_to_each_sink_and_prints_the_answer(shell: Shell, receiver: Receiver) -> None:
    ended = shell("alert", "test")

    assert (ended.code, ended.out) == (1, "ops: arrived (204 No Content)\n")
    assert "gone: did not arrive: false ended with status 1" in ended.err
    (request,) = receiver.requests
    assert (request.json["test"], request.json["title"]) == (True, "[test] pgrouse.test!")


@pytest.mark.usefixtures("two_sinks")
def test_one_sink_can_be_tested_alone_with_its_answer_as_json(shell: Shell, receiver: Receiver) -> None:
    ended = shell("alert", "test", "ops", "--json")

    assert ended.code == 0
    assert ended.object == {
        "sink": "ops",
        "type": "webhook",
        "id": receiver.requests[0].id,
        "arrived": True,
        "answer": "204 No Content",
    }


@pytest.mark.usefixtures("two_sinks")
def test_an_unknown_sink_is_a_usage_error(shell: Shell) -> None:
    ended = shell("alert", "test", "opps")

    assert (ended.code, "there are: ops, gone" in ended.err) == (2, True)


@pytest.mark.parametrize("command", ["test", "run"])
def test_alert_test_without_a_sink_does_nothing(shell: Shell, command: str) -> None:
    ended = shell("alert", command)

    assert (ended.code, "[[alerts.to]]" in ended.err) == (78, True)


# list, sinks, conditions


def test_the_list_shows_open_alerts(pgrouse: Shell, queue: Queue) -> None:
    raise_alert(queue, count=1200)
    raise_alert(queue, "quiet")
    sink = Sink(queue)
    sink.deliver()
    queue.call("silence", topic="quiet", **{"for": "1 hour"})

    ended = pgrouse("alert", "list", "--json")

    shown = {row["topic"]: (row["state"], row["count"], row["pending"]) for row in ended.objects}
    assert shown == {"t": ("firing", 1200, 0), "quiet": ("silenced", 1, 1)}
    assert "1,200" in pgrouse("alert", "list").out
    incidents = pgrouse("alert", "incidents", "--json").objects
    assert [(row["topic"], row["state"], row["sinks"]) for row in incidents] == [
        ("t", "firing", ["ops"]),
        ("quiet", "silenced", ["ops"]),
    ]


def test_the_list_shows_the_exception_and_not_the_head_of_its_traceback(pgrouse: Shell, queue: Queue) -> None:
    frame = '  File "/srv/shop/payments.py", line 12, in charge\n    client.post("/charges", json=order)\n'
    queue.publish()
    queue.settle(
        "fail", queue.claim(), [f"Traceback (most recent call last):\n{frame * 30}ConnectionError: no route\n"]
    )
    Sink(queue).deliver()

    shown = pgrouse("alert", "list").out

    assert "ConnectionError: no route" in shown
    assert "Traceback" not in shown


def test_an_empty_list_is_reported(pgrouse: Shell) -> None:
    ended = pgrouse("alert", "list")

    assert (ended.code, ended.out, ended.err) == (0, "", "no alerts\n")


def test_the_list_of_sinks_shows_which_fails_and_why(pgrouse: Shell, queue: Queue) -> None:
    raise_alert(queue)
    good, bad = Sink(queue, "good"), Sink(queue, "bad")
    bad.settle(bad.next(), "answered 503")
    good.deliver()

    ended = pgrouse("alert", "sinks", "--json")

    assert ended.code == 1
    assert {row["name"]: (row["state"], row["waiting"], row["last_error"]) for row in ended.objects} == {
        "good": ("ok", 0, None),
        "bad": ("failing", 1, "answered 503"),
    }


def test_the_conditions_that_are_violated_are_shown_with_exit_code_1(pgrouse: Shell, queue: Queue) -> None:
    queue.call("register_worker", "elsewhere", "host", 7, "1.0", ["elsewhere"], 1)
    assert pgrouse("alert", "conditions").code == 0
    queue.publish(wait="-6 minutes")

    ended = pgrouse("alert", "conditions", "--json")

    assert (ended.code, ended.object["kind"], ended.object["topic"]) == (1, "no_worker", "t")


# thresholds


def test_a_threshold_is_set_for_a_topic_or_for_all_and_shown(pgrouse: Shell) -> None:
    pgrouse("alert", "thresholds", "slow", "--set", "backlog_age=6h", "--set", "dead_per_hour=0")
    pgrouse("alert", "thresholds", "*", "--set", "backlog_age=5m")

    rows = {row["topic"]: row for row in pgrouse("alert", "thresholds", "--json").objects}

    assert (rows["slow"]["backlog_age"], rows["slow"]["dead_per_hour"], rows["slow"]["no_worker_for"]) == (
        21600,
        0,
        None,
    )
    assert (rows["*"]["backlog_age"], rows["*"]["dead_per_hour"]) == (300, 100)
    assert "none" in pgrouse("alert", "thresholds", "slow").out


@pytest.mark.parametrize("given", [("slow", "backlog=1"), ("slow", "backlog_age=soon"), ("slow", "dead_per_hour=x")])
def test_an_unknown_threshold_is_a_usage_error(pgrouse: Shell, given: tuple[str, str]) -> None:
    assert pgrouse("alert", "thresholds", given[0], "--set", given[1]).code == 2


# silence


def test_a_silence_is_added_listed_and_removed(pgrouse: Shell) -> None:
    added = pgrouse("alert", "silence", "add", "--topic", "orders.*", "--for", "2h", "--reason", "known")
    (listed,) = pgrouse("alert", "silence", "list", "--json").objects

    assert (added.code, added.out) == (0, f"{listed['id']}\n")
    assert (listed["topic"], listed["reason"]) == ("orders.*", "known")
    assert pgrouse("alert", "silence", "remove", listed["id"]).code == 0
    assert pgrouse("alert", "silence", "list").out == ""
    assert pgrouse("alert", "silence", "remove", listed["id"]).code == 1


@pytest.mark.parametrize(
    "options",
    [["--topic", "t"], ["--for", "1h"], ["--topic", "t", "--for", "1h", "--until", "2999-01-01T00:00:00Z"]],
)
def test_a_silence_needs_a_filter_and_a_duration(pgrouse: Shell, options: list[str]) -> None:
    assert pgrouse("alert", "silence", "add", *options).code == 2


# replay, forget


def test_a_replay_sends_past_alerts_again(pgrouse: Shell, queue: Queue) -> None:
    assert pgrouse("alert", "replay").code == 1
    raise_alert(queue)
    Sink(queue).deliver()

    ended = pgrouse("alert", "replay", "--since", "10m")

    assert (ended.code, ended.out) == (0, "1 message will be sent again\n")
    sent = queue.value("SELECT id FROM messages.alert_delivery WHERE replay_of IS NULL")
    assert pgrouse("alert", "replay", "--id", sent, "--json").object == {"messages": 1, "found": True}


def test_an_unused_sink_can_be_forgotten(pgrouse: Shell, queue: Queue) -> None:
    Sink(queue).next()

    assert [pgrouse("alert", "forget", "ops").code for _ in range(2)] == [0, 1]


def test_an_operator_may_run_every_alert_command(pgrouse: Shell, queue: Queue, acting_as: Any) -> None:
    raise_alert(queue)
    Sink(queue).deliver()
    acting_as("messages_operator")

    codes = {
        command: pgrouse("alert", *command.split()).code
        for command in (
            "list",
            "incidents --all",
            "sinks",
            "conditions",
            "replay",
            "silence add --topic t --for 1h",
            "silence list",
            "silence remove 1",
            "thresholds slow --set backlog_age=6h",
            "forget ops",
        )
    }

    assert codes == dict.fromkeys(codes, 0) | {"silence remove 1": codes["silence remove 1"]}
