"""`pgrouse batch`."""

from __future__ import annotations

from tests.cli.shell import Shell
from tests.sql.queue import Queue


def test_a_batch_is_created_filled_closed_and_shown(pgrouse: Shell, queue: Queue) -> None:
    created = pgrouse("batch", "create", "--name", "import", "--on-finish", "done", "--metadata", '{"file": "a.csv"}')
    batch = created.out.strip()
    pgrouse("publish", "t", "1", "--batch", batch)
    pgrouse("publish", "t", "2", "--batch", batch)
    queue.settle("complete", [queue.claim_one()])

    closed = pgrouse("batch", "close", batch)
    shown = pgrouse("batch", "show", batch).out.splitlines()
    queue.settle("complete", queue.claim())
    listed = pgrouse("batch", "list").out.splitlines()

    assert (created.code, closed.out) == (0, f"batch {batch} is closed\n")
    assert shown[0] == f"batch {batch}  import  closed"
    assert "  messages    2: 1 ended, 1 live" in shown
    assert "  ended       1 succeeded, 0 dead, 0 cancelled" in shown
    assert '  metadata    {"file": "a.csv"}' in shown
    assert "  on finish   topic done" in shown
    assert any(line.startswith("  end         about ") for line in shown)
    assert listed[1].split()[:4] == [batch, "import", "finished", "2"]


def test_json_has_what_people_read(pgrouse: Shell, queue: Queue) -> None:
    batch = queue.call("create_batch", "import", on_finish="done", metadata={"n": 1})
    queue.publish(batch_id=batch)

    row = pgrouse("batch", "list", "--json").object
    shown = pgrouse("batch", "show", batch, "--json").object

    assert (row["id"], row["live"], row["state"]) == (batch, 1, "open")
    assert row["callbacks"] == {"finish": {"topic": "done"}}
    assert shown["metadata"] == {"n": 1}


def test_a_batch_is_cancelled_and_redriven(pgrouse: Shell, queue: Queue) -> None:
    batch = queue.call("create_batch")
    message = queue.publish(batch_id=batch)
    queue.settle("fail", queue.claim(), ["boom"])

    redriven = pgrouse("batch", "redrive", batch)
    named = pgrouse("message", "show", str(message)).out
    cancelled = pgrouse("batch", "cancel", batch, "--reason", "wrong file")
    nothing = pgrouse("batch", "redrive", batch)

    assert redriven.out == "redrove 1 message\n"
    assert f"batch        {batch}" in named
    assert cancelled.out == f"cancelled 1 message of batch {batch}\n"
    assert "has no dead message" in nothing.out


def test_an_unknown_batch_is_exit_code_1_and_a_closed_one_refuses(pgrouse: Shell, queue: Queue) -> None:
    batch = queue.call("create_batch")
    queue.call("close_batch", batch)

    shown = pgrouse("batch", "show", "999")
    refused = pgrouse("publish", "t", "1", "--batch", batch)

    assert (shown.code, shown.err) == (1, "pgrouse: there is no batch 999: see `pgrouse batch list`\n")
    assert refused.code != 0
    assert f"batch {batch} was finished" in refused.err
