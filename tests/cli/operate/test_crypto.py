"""`pgrouse crypto`, and encryption in publish and show."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from pgrouse import Cipher, NewMessage, publish, publish_many
from pgrouse.client.encryption import key_rotation
from pgrouse.crypto.envelope import ENCRYPTED_BY, ContentKind
from tests.cli.shell import Shell
from tests.server.postgres import Database
from tests.sql.queue import Queue

OLD, NEW = os.urandom(32), os.urandom(32)
TEXTS = {"OLD_KEY": base64.b64encode(OLD).decode(), "NEW_KEY": base64.b64encode(NEW).decode()}


def configure(current: str, *names: str, topics: str = '["pay"]') -> None:
    tables = "".join(f'[crypto.keys.{name}]\nenv = "{name.upper()}_KEY"\n' for name in names)
    Path("pgrouse.toml").write_text(f'[crypto]\ncurrent = "{current}"\ntopics = {topics}\n{tables}')


@pytest.fixture
def keyed(pgrouse: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """`pgrouse`, with keys in the environment and both configured, the new one current. None of them may be printed."""
    for name, text in TEXTS.items():
        monkeypatch.setenv(name, text)
    configure("new", "old", "new")
    return pgrouse


@pytest.fixture
def under_old(database: Database) -> int:
    """A message that waits under the old key."""
    cipher = Cipher({"old": OLD}, "old")
    return int(publish(database.connect(), "pay", {"card": "4711"}, cipher=cipher))


def test_a_new_key_is_32_random_bytes(shell: Shell) -> None:
    first, second = shell("crypto", "key").out, shell("crypto", "key", "--json").object["key"]

    assert [len(base64.b64decode(each)) for each in (first, second)] == [32, 32]
    assert first.strip() != second


def test_publish_encrypts_the_topics_of_the_configuration(keyed: Shell, queue: Queue) -> None:
    keyed("publish", "pay", '{"card": "4711"}')
    keyed("publish", "other", '{"card": "4711"}')
    keyed("publish", "pay", "--lines", "-", stdin='{"card": "4711"}\n{"card": "4711"}\n')

    assert queue.rows("SELECT topic, payload IS NULL AS encrypted, headers FROM messages.message ORDER BY id") == [
        ("pay", True, {ENCRYPTED_BY: "new"}),
        ("other", False, None),
        ("pay", True, {ENCRYPTED_BY: "new"}),
        ("pay", True, {ENCRYPTED_BY: "new"}),
    ]


def test_the_payload_schema_is_checked_before_encryption(keyed: Shell, queue: Queue) -> None:
    queue.policy("pay", payload_schema={"type": "object", "required": ["card"]}, max_payload_bytes=150)

    assert keyed("publish", "pay", '{"card": "4711"}').code == 0
    refused = keyed("publish", "pay", '{"cart": "4711"}')
    assert (refused.code, "does not fit the payload_schema" in refused.err) == (1, True)
    # The stored size counts: an envelope has 66 bytes more than its content.
    assert "has 178 bytes, max_payload_bytes is 150" in keyed("publish", "pay", json.dumps({"card": "4" * 100})).err


def test_a_keyed_publish_can_replace_and_ignore_but_not_append(keyed: Shell, queue: Queue) -> None:
    first = keyed("publish", "pay", "1", "--key", "k").out.strip()

    assert keyed("publish", "pay", "2", "--key", "k", "--on-conflict", "replace").out.strip() == first
    assert keyed("publish", "pay", "3", "--key", "k", "--on-conflict", "ignore").out.strip() == first
    refused = keyed("publish", "pay", "4", "--key", "k", "--on-conflict", "append")

    assert refused.code == 1
    assert "topic pay is encrypted: nothing can be appended" in refused.err
    assert keyed("message", "show", first, "--decrypt", "--json").object["payload"] == 2


def test_show_marks_encrypted_messages_and_decrypts_with_the_key(keyed: Shell, under_old: int) -> None:
    plain, as_json = keyed("message", "show", under_old), keyed("message", "show", under_old, "--json")
    decrypted = keyed("message", "show", under_old, "--decrypt")

    assert "encrypted (key old, 81 bytes)" in plain.out
    assert as_json.object["body"] == "encrypted (key old, 81 bytes)"
    assert "4711" not in plain.out + as_json.out
    assert '"card": "4711"' in decrypted.out
    configure("new", "new")
    assert (keyed("message", "show", under_old, "--decrypt").code, keyed("message", "show", under_old).code) == (
        78,
        0,
    )


def test_check_counts_the_messages_that_need_each_key(
    keyed: Shell, under_old: int, database: Database, queue: Queue
) -> None:
    both = Cipher({"old": OLD, "new": NEW}, "new")
    publish_many(database.connect(), [NewMessage(topic="dead", payload=1) for _ in range(3)], cipher=both)
    queue.settle("fail", queue.claim("dead", limit=1), ["broken"])
    queue.claim("dead", limit=1)

    listed = keyed("crypto", "check", "--json")

    assert listed.objects == [
        {"key": "new", "current": True, "configured": True, "waiting": 1, "running": 1, "dead": 1},
        {"key": "old", "current": False, "configured": True, "waiting": 1, "running": 0, "dead": 0},
    ]
    assert keyed("crypto", "check").table[1] == {
        "KEY": "old",
        "HERE": "yes",
        "CURRENT": "no",
        "WAITING": "1",
        "RUNNING": "0",
        "DEAD": "0",
    }
    assert "not all messages were read: --limit 10" in keyed("crypto", "check", "--limit", "1").err
    configure("new", "new")
    missing = keyed("crypto", "check")
    assert (missing.code, "key old is needed and not configured here" in missing.err) == (1, True)


def test_check_counts_the_stored_results_of_steps_which_are_never_reencrypted(
    keyed: Shell, under_old: int, queue: Queue
) -> None:
    kept = Cipher({"old": OLD}, "old").encrypt_json("pay", "1", ContentKind.OUTPUT)
    queue.conn.execute(
        "INSERT INTO messages.step (message_id, name, result, attempt) VALUES (%s, 'charge', %s, 1)", [under_old, kept]
    )

    assert keyed("crypto", "rotate").out == "1 message encrypted under key new\n"

    needs = {each["key"]: each["waiting"] for each in keyed("crypto", "check", "--json").objects}
    assert needs == {"new": 1, "old": 1}
    assert keyed("crypto", "rotate").out == "0 messages encrypted under key new\n"


def test_rotate_reencrypts_waiting_messages_with_the_current_key(keyed: Shell, under_old: int, queue: Queue) -> None:
    rotated = keyed("crypto", "rotate", "--json")

    assert rotated.object == {"key": "new", "rotated": 1, "skipped": 0, "missing": {}, "broken": []}
    assert queue.message(under_old).headers == {ENCRYPTED_BY: "new"}
    assert keyed("crypto", "rotate").out == "0 messages encrypted under key new\n"
    configure("new", "new")
    assert keyed("message", "show", under_old, "--decrypt", "--json").object["payload"] == {"card": "4711"}


@pytest.mark.parametrize(("bound", "most"), [("BATCH", 2), ("BATCH_BYTES", 2500)])
def test_a_rotation_goes_by_batches_of_bounded_number_and_size(
    database: Database, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    conn = database.connect()
    for _ in range(5):
        publish(conn, "pay", body=b"x" * 1000, cipher=Cipher({"old": OLD}, "old"))
    monkeypatch.setattr(key_rotation, bound, most)

    rotated = key_rotation.rotate(conn, Cipher({"old": OLD, "new": NEW}, "new"))

    assert [each.done for each in rotated] == [2, 2, 1]


def test_rotate_leaves_running_messages_other_topics_and_dead_letters_by_default(
    keyed: Shell, under_old: int, database: Database, queue: Queue
) -> None:
    old = Cipher({"old": OLD}, "old")
    queue.policy("x", dead_letter=True)
    publish(database.connect(), "x", 1, cipher=old)
    queue.settle("fail", queue.claim("x"), ["broken"])

    assert keyed("crypto", "rotate", "--topic", "x").out == "0 messages encrypted under key new\n"
    assert keyed("crypto", "rotate", "--topic", "x.dlq", "--dead").out == "1 message encrypted under key new\n"
    queue.claim("pay")
    left = keyed("crypto", "rotate")
    assert (left.code, left.out) == (0, "0 messages encrypted under key new\n")
    assert "1 message left alone, since they run" in left.err


def test_rotate_reports_what_it_cannot_decrypt_and_reencrypts_the_others(
    keyed: Shell, under_old: int, database: Database, queue: Queue
) -> None:
    conn = database.connect()
    publish(conn, "pay", 1, cipher=Cipher({"lost": os.urandom(32)}, "lost"))
    queue.conn.execute("UPDATE messages.message SET body = body || '\\x00' WHERE id = %s", [under_old])
    publish(conn, "pay", 2, cipher=Cipher({"old": OLD}, "old"))

    rotated = keyed("crypto", "rotate")

    assert (rotated.code, rotated.out) == (1, "1 message encrypted under key new\n")
    assert "1 message under key lost, which is not configured here" in rotated.err
    assert f"1 message cannot be decrypted, they were changed: {under_old}" in rotated.err


def test_the_commands_need_crypto_in_the_configuration(pgrouse: Shell) -> None:
    assert (pgrouse("crypto", "check").code, pgrouse("crypto", "rotate").code) == (78, 78)


def test_no_output_contains_a_key(keyed: Shell, under_old: int, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = ("doctor", "--only", "crypto_keys", "--only", "crypto_needed")
    commands = [("config", "show"), ("config", "check"), ("crypto", "check"), checks, ("message", "show", under_old)]
    printed = "".join(ended.out + ended.err for each in commands for ended in [keyed(*each), keyed(*each, "--json")])
    monkeypatch.setenv("OLD_KEY", TEXTS["OLD_KEY"][:-5])
    printed += "".join(ended.out + ended.err for each in commands for ended in [keyed(*each)])

    assert not [text for text in TEXTS.values() if text[:12] in printed]


def test_doctor_finds_messages_that_wait_for_a_key_and_invalid_keys(
    keyed: Shell, under_old: int, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = ("doctor", "--only", "crypto_keys", "--only", "crypto_needed", "--json")
    assert {(each["code"], each["level"]) for each in keyed(*checks).objects} == {
        ("crypto_keys", "ok"),
        ("crypto_needed", "ok"),
    }
    queue.conn.execute("INSERT INTO messages.subscription (topic, subscriber) VALUES ('pay', 'mails')")
    monkeypatch.setenv("NEW_KEY", base64.b64encode(b"correct-horse-battery-staple-123").decode())
    configure("new", "new")

    found = keyed(*checks)

    assert found.code == 1
    assert {(each["level"], each["what"]) for each in found.objects} == {
        ("warn", "key new is not random: it is text"),
        ("fail", "key old is not configured here: 1 message wait for it"),
        ("warn", "mails subscribes to pay, which is encrypted, and its workers reject the messages"),
    }
    Path("pgrouse.toml").unlink()
    assert {each["code"]: each["level"] for each in keyed(*checks).objects} == {
        "crypto_keys": "ok",
        "crypto_needed": "fail",
    }


def test_config_check_reads_the_keys(keyed: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keyed("config", "check").code == 0
    monkeypatch.delenv("OLD_KEY")

    refused = keyed("config", "check")

    assert refused.code == 78
    assert "key old: the environment variable OLD_KEY is not set" in refused.err
