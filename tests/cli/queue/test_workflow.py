"""`pgrouse workflow`."""

from __future__ import annotations

from tests.cli.shell import Shell
from tests.sql.queue import Queue


def publish_order(queue: Queue) -> tuple[int, int, int]:
    """Publish a workflow of three messages in a row, whose second one failed."""
    check = queue.publish("order.check")
    bill = queue.send(topic="order.bill", after=[check]).id
    ship = queue.send(topic="order.ship", after=[bill]).id
    queue.settle("complete", queue.claim("order.check"))
    queue.settle("fail", queue.claim("order.bill"), ["boom"])
    return check, bill, ship


def test_a_workflow_is_listed_and_shown_by_any_of_its_messages(pgrouse: Shell, queue: Queue) -> None:
    check, bill, ship = publish_order(queue)
    other = queue.publish("other.first")
    queue.send(topic="other.second", after=[other])

    listed = pgrouse("workflow", "list").out.splitlines()
    held = pgrouse("workflow", "list", "--state", "held", "--json").objects
    shown = pgrouse("workflow", "show", ship).out.splitlines()
    in_json = pgrouse("workflow", "show", bill, "--json").object

    assert [line.split()[:8] for line in listed[1:]] == [
        [str(other), "other.first", "running", "2", "2", "0", "0", "0"],
        [str(check), "order.check", "held", "3", "1", "1", "1", "0"],
    ]
    assert [(row["id"], row["state"]) for row in held] == [(check, "held")]
    assert shown[0] == f"workflow {check}  held"
    assert "  messages    3: 2 ended, 1 live" in shown
    assert shown[-1].split() == [str(ship), "order.ship", "blocked", "held", "0", str(bill)]
    assert [(each["id"], each["after"], each["state"]) for each in in_json["messages"]] == [
        (check, [], "success"),
        (bill, [check], "failed"),
        (ship, [bill], "blocked"),
    ]


def test_pages_follow_by_the_last_id(pgrouse: Shell, queue: Queue) -> None:
    first, second = queue.publish("w.first"), queue.publish("w.first")
    for each in (first, second):
        queue.send(topic="w.second", after=[each])

    newest = pgrouse("workflow", "list", "--limit", 1, "--json").object["id"]
    older = pgrouse("workflow", "list", "--limit", 1, "--before", newest, "--json").object["id"]

    assert (newest, older) == (second, first)


def test_dead_messages_are_put_back_and_the_rest_is_cancelled(pgrouse: Shell, queue: Queue) -> None:
    check, bill, ship = publish_order(queue)

    redriven = pgrouse("workflow", "redrive", ship)
    running = pgrouse("workflow", "show", check, "--json").object
    cancelled = pgrouse("workflow", "cancel", bill, "--reason", "withdrawn")
    nothing = pgrouse("workflow", "redrive", check)

    assert (redriven.code, redriven.out) == (0, "redrove 1 message\n")
    assert (running["state"], running["dead"], running["live"]) == ("running", 0, 2)
    assert cancelled.out == f"cancelled 2 messages of workflow {check}\n"
    assert queue.value("SELECT error FROM messages.message_archive WHERE id = %s", [ship]) == "cancelled: withdrawn"
    assert nothing.out == f"workflow {check} has no dead message\n"


def test_a_message_in_no_workflow_is_exit_code_1(pgrouse: Shell, queue: Queue) -> None:
    alone = queue.publish("alone")

    ended = [pgrouse("workflow", command, alone) for command in ("show", "cancel", "redrive")]

    assert {(each.code, each.err) for each in ended} == {
        (1, f"pgrouse: message {alone} is in no workflow: see `pgrouse workflow list`\n")
    }
    assert queue.value("SELECT count(*) FROM messages.message WHERE id = %s", [alone]) == 1
