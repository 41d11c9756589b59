"""`pgrouse redrive`."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.cli.shell import Shell
from tests.cli.stage import die
from tests.sql.queue import Queue


def waiting(queue: Queue) -> list[int]:
    """Return the predecessors of the waiting messages, in the order of their redrives."""
    return [row.redriven_from for row in queue.rows("SELECT redriven_from FROM messages.message ORDER BY id")]


def test_messages_are_redriven_by_their_ids(pgrouse: Shell, queue: Queue) -> None:
    first, second, third = die(queue, "a", "b", "c")

    ended = pgrouse("redrive", first, third)

    assert (ended.code, ended.err) == (0, "")
    assert [line.split(" is back as ")[0] for line in ended.out.splitlines()] == [str(first), str(third)]
    assert waiting(queue) == [first, third]
    assert second not in waiting(queue)


def test_json_pairs_each_message_with_its_new_message_and_outcome(pgrouse: Shell, queue: Queue) -> None:
    (dead,) = die(queue, "a")

    found = pgrouse("redrive", dead, "--json").object

    assert found == {"archived_id": dead, "message_id": queue.ids()[0], "outcome": "redriven"}


def test_all_messages_are_redriven_in_several_batches(pgrouse: Shell, queue: Queue) -> None:
    queue.publish_many(1200)
    for _ in range(12):
        claimed = queue.claim(limit=100)
        queue.settle("fail", claimed, ["boom"] * len(claimed))

    ended = pgrouse("redrive", "--all")

    assert (ended.code, ended.out) == (0, "redrove 1,200 messages\n")
    assert len(queue.ids()) == 1200


def test_a_dry_run_counts_by_topic_result_and_fingerprint(pgrouse: Shell, queue: Queue) -> None:
    (first,) = die(queue, "a")
    die(queue, "b", error="disk 7 is full")
    die(queue, "b", error="disk 8 is full")
    die(queue, "b", error="no route")

    ended = pgrouse("redrive", "--all", "--dry-run")

    assert ended.out.splitlines()[-1] == "would redrive 4 messages: run it again without --dry-run"
    assert sorted(line.split()[:3] for line in ended.out.splitlines()[1:-1]) == [
        ["a", "failed", "1"],
        ["b", "failed", "1"],
        ["b", "failed", "2"],
    ]
    groups = {
        (row["topic"], row["messages"]): row for row in pgrouse("redrive", "--all", "--dry-run", "--json").objects
    }
    assert set(groups) == {("a", 1), ("b", 1), ("b", 2)}
    assert (groups["a", 1]["sample_id"], groups["a", 1]["sample_error"]) == (first, "boom")
    assert queue.ids() == []


def test_a_dead_message_is_redriven_once(pgrouse: Shell, queue: Queue) -> None:
    (dead,) = die(queue, "a")
    new = pgrouse("redrive", dead, "--json").object["message_id"]

    ended = pgrouse("redrive", dead)

    assert (ended.code, ended.out) == (1, "")
    assert ended.err == (
        f"pgrouse: message {dead} not redriven: redriven before (`pgrouse dead list --redriven`) [{new}]\n"
    )
    assert pgrouse("redrive", "--all").out == "no dead message matches: nothing was redriven\n"
    assert len(queue.ids()) == 1


@pytest.mark.parametrize("arguments", [["999"], ["1", "999"]])
def test_each_id_that_is_not_dead_is_reported(pgrouse: Shell, queue: Queue, arguments: list[str]) -> None:
    queue.publish()

    ended = pgrouse("redrive", *arguments)

    assert ended.code == 1
    assert [line.split(" (")[0] for line in ended.err.splitlines()] == [
        f"pgrouse: message {each} not redriven: not a dead message" for each in arguments
    ]


def test_a_message_whose_key_waits_again_stays_dead_without_an_error_or_delay_of_others(
    pgrouse: Shell, queue: Queue
) -> None:
    stuck = queue.publish(key="k")
    queue.settle("fail", queue.claim(), ["boom"])
    (other,) = die(queue, "t")
    newer = queue.publish(key="k")

    ended = pgrouse("redrive", "--all")

    assert (ended.code, ended.out) == (0, "redrove 1 message\n")
    assert ended.err.startswith("pgrouse: 1 message stayed dead: a newer message with the same key waits")
    assert other in waiting(queue)
    named = pgrouse("redrive", stuck)
    assert (named.code, named.err.endswith(f"(the topic's key_on_retry is supersede) [{newer}]\n")) == (0, True)


def test_a_message_comes_back_without_its_key_if_key_on_retry_is_keep(pgrouse: Shell, queue: Queue) -> None:
    queue.policy(key_on_retry="keep")
    stuck = queue.publish(key="k")
    queue.settle("fail", queue.claim(), ["boom"])
    queue.publish(key="k")

    ended = pgrouse("redrive", stuck)

    assert (ended.code, stuck in waiting(queue)) == (0, True)
    assert ended.err == "1 message came back without the key: a newer message has it\n"


def test_filters_by_fingerprint_error_text_and_time_choose_messages(pgrouse: Shell, queue: Queue) -> None:
    (wanted,) = die(queue, "a", age="2 hours", error="disk 7 is full")
    die(queue, "a", error="disk 8 is full")
    die(queue, "a", age="2 hours", error="no route")
    fingerprint = queue.archived(wanted).error_fingerprint

    ended = pgrouse("redrive", "--fingerprint", fingerprint, "--error", "FULL", "--until", "1h", "--since", "1d")

    assert ended.out == "redrove 1 message\n"
    assert waiting(queue) == [wanted]


def test_a_rate_spreads_messages_over_all_batches(pgrouse: Shell, queue: Queue) -> None:
    queue.publish_many(1100)
    for _ in range(11):
        claimed = queue.claim(limit=100)
        queue.settle("fail", claimed, ["boom"] * len(claimed))

    pgrouse("redrive", "--all", "--rate", "10")

    spread = "SELECT extract(epoch FROM max(available_at) - min(available_at))::float FROM messages.message"
    # 110 seconds, and the time between two batches; each batch for itself would take 100.
    assert 101 < queue.value(spread) < 119
    steps = "SELECT count(DISTINCT available_at) FROM messages.message"
    assert queue.value(steps) == 1100


def test_a_delay_is_that_of_the_first_message(pgrouse: Shell, queue: Queue) -> None:
    die(queue, "a", "a")

    pgrouse("redrive", "--all", "--rate", "0.1", "--delay", "1h")

    first, second = (
        row[0] for row in queue.rows("SELECT available_at - clock_timestamp() FROM messages.message ORDER BY 1")
    )
    assert timedelta(minutes=58) < first <= timedelta(hours=1)
    assert timedelta(seconds=9) < second - first < timedelta(seconds=11)


def test_a_message_that_dies_again_during_the_run_is_not_redriven_again(
    pgrouse: Shell, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgrouse.cli.queue.redrive.PAGE", 1)
    die(queue, "a", "a")
    queue.conn.execute(
        """
        CREATE FUNCTION die_at_once() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          PERFORM messages.fail(ARRAY[c.id], ARRAY[c.claim_id], ARRAY['again'])
          FROM messages.claim('w', ARRAY['a'], 10) AS c;
          RETURN NULL;
        END $$;
        CREATE TRIGGER zz_die AFTER INSERT ON messages.message FOR EACH STATEMENT EXECUTE FUNCTION die_at_once();
        """
    )
    try:
        ended = pgrouse("redrive", "--all")
    finally:
        queue.conn.execute("DROP FUNCTION die_at_once CASCADE")

    assert ended.out == "redrove 2 messages\n"
    assert queue.value("SELECT count(*) FROM messages.message_archive") == 4


def test_the_number_of_redrives_is_limited_unless_forced(pgrouse: Shell, queue: Queue) -> None:
    queue.policy("a", max_redrives=1)
    (first,) = die(queue, "a")
    second = pgrouse("redrive", first, "--json").object["message_id"]
    queue.settle("fail", queue.claim("a"), ["boom"])

    refused = pgrouse("redrive", second)

    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        f"pgrouse: message {second} stayed dead: redriven max_redrives times already; --force redrives it anyway\n"
    )
    assert pgrouse("redrive", "--all").err.startswith("pgrouse: 1 message stayed dead: redriven max_redrives times")
    assert pgrouse("redrive", second, "--force").code == 0


def test_one_message_is_edited_when_it_is_redriven(pgrouse: Shell, queue: Queue) -> None:
    dead = queue.publish("a", payload={"id": 7, "n": 1}, headers={"h": 1})
    queue.settle("fail", queue.claim("a"), ["boom"])

    ended = pgrouse(
        "redrive", dead, "--payload", '{"n": 9007199254740993}', "--headers", '{"by": "me"}', "--to", "b", "--json"
    )

    new = queue.message(ended.object["message_id"])
    assert (new.topic, new.payload, new.headers) == ("b", {"id": 7, "n": 9007199254740993}, {"h": 1, "by": "me"})


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["1", "2", "--payload", "1"], "--payload, --headers and --to edit one message"),
        (["--all", "--to", "b"], "--payload, --headers and --to edit one message"),
        (["1", "--to", "b", "--rate", "1"], "--payload, --headers and --to edit one message"),
        (["1", "--to", "b", "--delay", "1m"], "--payload, --headers and --to edit one message"),
        (["1", "--replace"], "--replace needs --payload or --headers"),
        (["1", "--rate", "0"], "invalid value for '--rate'"),
    ],
)
def test_incompatible_options_are_reported(shell: Shell, arguments: list[str], complaint: str) -> None:
    ended = shell("redrive", *arguments)

    assert ended.code == 2
    assert complaint in ended.err


@pytest.mark.parametrize(
    ("option", "value", "complaint"),
    [
        ("--payload", '{"a": 1', "payload"),
        ("--headers", "[1]", "headers of a redrive are a JSON array"),
        ("--to", "x.dlq", "topics that end with .dlq are filled by dead_letter alone"),
    ],
)
def test_an_invalid_edit_is_refused(pgrouse: Shell, queue: Queue, option: str, value: str, complaint: str) -> None:
    (dead,) = die(queue, "a")

    ended = pgrouse("redrive", dead, option, value)

    assert ended.code == 1
    assert complaint in ended.err
    assert queue.ids() == []
