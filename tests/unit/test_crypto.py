"""Encryption of message content: the envelope, the keys, and how a daemon uses both."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pickle
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import LogCapture

from pgrouse import (
    AsyncBatchContext,
    AsyncContext,
    Cipher,
    Context,
    DecryptionFailed,
    EncryptionKeyMissing,
    InvalidMessage,
    NewMessage,
    Retry,
)
from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind as How
from pgrouse.client.processing.settlement import Settlement
from pgrouse.config import config
from pgrouse.config.config import load
from pgrouse.config.crypto import CryptoSettings
from pgrouse.config.source import ConfigProblems
from pgrouse.crypto import envelope, keys
from pgrouse.crypto.envelope import ENCRYPTED_BY, ContentKind
from pgrouse.crypto.keyless_cipher import KeylessCipher
from pgrouse.doctor import encryption
from pgrouse.doctor.target import DoctorTarget
from pgrouse.errors import ConfigError
from pgrouse.handlers import outcome
from pgrouse.handlers.ack_rules import AckPolicy, AckRules
from pgrouse.handlers.handler import BatchOptions, ExecutionMode, Handler
from pgrouse.process.wake_event import WakeEvents
from pgrouse.publishing.new_message import to_columns
from pgrouse.web.page import message_detail
from pgrouse.worker.execution.executor import HandlerExecutor
from pgrouse.worker.execution.in_flight import InFlight
from pgrouse.worker.execution.settle_buffer import SettleBuffer
from pgrouse.worker.message_crypto import MessageCrypto
from pgrouse.worker.reporting.observer import NO_OBSERVER, NoObserver, NoSpan, Observer
from tests.unit.worker.test_executor import until

OLD, NEW = bytes(range(32)), bytes(range(32, 64))
RANDOMNESS = bytes(range(100, 128))
SALT, NONCE = RANDOMNESS[:16], RANDOMNESS[16:]
TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=50)


@pytest.fixture
def cipher() -> Cipher:
    return Cipher({"old": OLD, "new": NEW}, "new")


def as_text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def message(**given: Any) -> Message:
    about = {"id": 7, "claim_id": 1, "topic": "t", "channel": None, "key": None, "priority": 5, "attempt": 1}
    rest = {"max_attempts": None, "payload": None, "body": None, "headers": None, "state": None}
    times = {"lock_duration_s": 30.0, "timeout_s": None, "waited_s": 0.0, "elapsed_s": 0.0}
    return Message(**{**about, **rest, **times, **given})


def encrypted_message(cipher: Cipher, text: str = '{"id":7}', **given: Any) -> Message:
    columns = cipher.encrypt_columns({"topic": "t", "payload": text})
    return message(body=columns["body"], headers=columns["headers"], **given)


# The envelope.


def test_an_envelope_of_the_first_version_can_be_decrypted() -> None:
    stored = bytes.fromhex(VECTOR)

    assert Cipher({"new": NEW}, "new").decrypt(stored, "t") == (ContentKind.JSON, b'{"id":7}')
    assert Cipher({"new": NEW}, "new").encrypt("t", b'{"id":7}', ContentKind.JSON, RANDOMNESS) == stored


VECTOR = (
    "9350475201010301d72a0d82c3a51c336e6577746465666768696a6b6c6d6e6f707172737475767778797a7b7c7d7e7fea5e"
    "9fafd86ec314860c252fe18e486fb0fd649c1b9d76d7"
)


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300), topic=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,30}", fullmatch=True))
def test_bytes_are_restored(data: bytes, topic: str) -> None:
    cipher = Cipher({"k": OLD}, "k")

    columns = cipher.encrypt_columns({"topic": topic, "body": data})

    assert cipher.decrypt_payload(topic, columns["body"]) == (None, data)


@settings(max_examples=100, deadline=None)
@given(value=st.recursive(st.none() | st.booleans() | st.integers() | TEXT, st.lists, max_leaves=5))
def test_json_is_restored(value: Any) -> None:
    cipher = Cipher({"k": OLD}, "k")
    text = json.dumps(value)

    columns = cipher.encrypt_columns({"topic": "t", "payload": text, "headers": '{"a":1}', "priority": 3})

    assert cipher.decrypt_payload("t", columns["body"]) == (text, None)
    assert json.loads(columns["headers"]) == {"a": 1, ENCRYPTED_BY: "k"}
    assert "payload" not in columns
    assert columns["priority"] == 3


def test_a_changed_or_truncated_envelope_is_refused(cipher: Cipher) -> None:
    made = cipher.encrypt("t", b"pay 7", ContentKind.BYTES)

    for at in range(len(made)):
        with pytest.raises((DecryptionFailed, EncryptionKeyMissing)):
            cipher.decrypt(made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :], "t")
        with pytest.raises((DecryptionFailed, EncryptionKeyMissing)):
            cipher.decrypt(made[:at], "t")


def test_two_envelopes_of_one_message_differ(cipher: Cipher) -> None:
    assert len({cipher.encrypt("t", b"pay 7") for _ in range(100)}) == 100


def test_an_envelope_of_another_topic_is_refused(cipher: Cipher) -> None:
    made = cipher.encrypt("payments", b"7")

    with pytest.raises(DecryptionFailed, match="encrypted for topic payments, which refunds does not take"):
        cipher.decrypt(made, "refunds")
    assert cipher.decrypt(made, "payments.dlq").data == b"7"


def test_an_envelope_of_an_accepted_topic_is_decrypted() -> None:
    cipher = Cipher({"k": OLD}, "k", accept_from={"invoices": ["orders.*"]})
    made = cipher.encrypt("orders.created", b"7")

    assert cipher.decrypt(made, "invoices").data == b"7"
    assert cipher.decrypt(made, "invoices.dlq").data == b"7"
    with pytest.raises(DecryptionFailed):
        cipher.decrypt(made, "mails")


def test_a_checkpoint_cannot_replace_a_payload(cipher: Cipher) -> None:
    state = envelope.from_json(cipher.encrypt_json("t", "{}", ContentKind.STATE))
    assert state is not None

    with pytest.raises(DecryptionFailed, match="the encrypted state of something else"):
        cipher.decrypt(state, "t")


def test_a_missing_key_differs_from_a_wrong_key_of_the_same_name(cipher: Cipher) -> None:
    made = cipher.encrypt("t", b"7")

    with pytest.raises(EncryptionKeyMissing, match="key new is not configured here"):
        Cipher({"old": OLD}, "old").decrypt(made, "t")
    with pytest.raises(EncryptionKeyMissing, match="key new is not the one that is configured here under this name"):
        Cipher({"new": OLD}, "new").decrypt(made, "t")


def test_reencryption_keeps_the_content_and_the_topic(cipher: Cipher) -> None:
    made = Cipher({"old": OLD}, "old").encrypt("t", b"{}", ContentKind.JSON)

    again = cipher.reencrypt(made)

    head = envelope.read_header(again)
    assert head is not None
    assert (head.key, head.topic, cipher.is_current(head)) == ("new", "t", True)
    assert Cipher({"new": NEW}, "new").decrypt(again, "t") == (ContentKind.JSON, b"{}")


def test_only_its_topics_and_their_dead_letters_are_encrypted() -> None:
    cipher = Cipher({"k": OLD}, "k", topics=["orders.*", "pay"])

    assert [t for t in ("orders.created", "orders.x.dlq", "pay", "pay.dlq", "paying", "order") if cipher.covers(t)] == [
        "orders.created",
        "orders.x.dlq",
        "pay",
        "pay.dlq",
    ]
    assert cipher.encrypt_columns({"topic": "paying", "payload": "1"}) == {"topic": "paying", "payload": "1"}


def test_an_envelope_that_is_too_large_is_refused(cipher: Cipher) -> None:
    with pytest.raises(InvalidMessage, match=r"encrypted it has 16,777,\d+ bytes"):
        cipher.encrypt_columns({"topic": "t", "body": bytes(16 * 1024 * 1024)})


def test_a_publisher_without_the_key_cannot_publish_to_encrypted_topics() -> None:
    keyless = KeylessCipher(["pay"])

    assert keyless.encrypt_columns({"topic": "t", "payload": "1"}) == {"topic": "t", "payload": "1"}
    with pytest.raises(InvalidMessage, match="topic pay is encrypted"):
        keyless.encrypt_columns({"topic": "pay", "payload": "1"})


def test_a_key_is_in_no_repr_and_in_no_pickle(cipher: Cipher) -> None:
    shown = repr(cipher) + repr(vars(cipher))

    assert as_text(NEW) not in shown
    assert repr(NEW)[2:-1] not in shown
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(cipher)


def test_a_key_of_another_length_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError, match="key k is not 32 bytes as base64") as refused:
        Cipher({"k": "c2VjcmV0LXNlY3JldA=="}, "k")
    assert "c2Vj" not in str(refused.value)


def test_the_padding_of_a_key_may_be_omitted() -> None:
    made = Cipher({"k": OLD}, "k").encrypt("t", b"7")

    assert Cipher({"k": as_text(OLD).rstrip("=")}, "k").decrypt(made).data == b"7"


# The configuration.


def configured(folder: Path, text: str) -> Any:
    path = folder / "pgrouse.toml"
    path.write_text(text)
    return load(path, environ={})


INLINE = [
    ('[crypto.keys]\nk = "{key}"', "a key must not be in the configuration"),
    ('[crypto.keys.k]\nkey = "{key}"', "a key must not be in the configuration"),
    ('[crypto.keys.k]\nenv = "{key}"', "holds a key itself"),
    ('[crypto.keys.k]\nfile = "{key}"', "holds a key itself"),
    ('[crypto.keys.k]\ncommand = ["echo", "{key}"]', "holds a key itself"),
    ('[crypto.keys.k]\nenv = "{half}"', "expected the name of an environment variable"),
    ('[crypto.keys.k]\nfile = "{bare}"', "holds a key itself"),
    ('[crypto.keys.k]\ncommand = "echo {key}"', "expected a list"),
    ('[crypto.keys]\nk = ["{key}"]', "expected a table of keys"),
    ('[crypto.keys."{key}"]\nfile = "x"', "holds a key itself"),
    ('[crypto.keys."{bare}"]\nfile = "x"\nmore = 1', "holds a key itself"),
    ('[crypto.accept_from]\n"{bare}=" = ["a"]', "is not a valid topic pattern"),
    ('topics = ["{bare}="]', "is not a valid topic pattern"),
    ('keys = "{key}"', "expected a table of keys"),
    ('missing_key_delay = "{key}"', "expected a duration"),
    ('unencrypted = "{key}"', "expected 'accept' or 'reject'"),
    ('"{bare}" = 1', "unknown key in .crypto."),
]


@pytest.mark.parametrize(("text", "reason"), INLINE)
def test_a_key_in_the_file_is_refused_with_the_reason_and_not_repeated(tmp_path: Path, text: str, reason: str) -> None:
    key = as_text(os.urandom(32))

    with pytest.raises(ConfigProblems, match=reason) as refused:
        configured(tmp_path, '[crypto]\ncurrent = "k"\n' + text.format(key=key, half=key[:-8] + "/", bare=key[:-1]))

    assert key[:10] not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[crypto]\ntopics = ["a"]', "current is missing"),
        ('[crypto]\ncurrent = "x"\n[crypto.keys.k]\nenv = "K"', 'there is no key "x"'),
        ('[crypto]\ncurrent = "k"\n[crypto.keys.k]\nenv = "K"\nfile = "f"', "needs exactly one of env, file, command"),
        ('[crypto]\ncurrent = "k"\n[crypto.keys."k k"]\nenv = "K"', "is not a valid key name"),
        ('[crypto]\ncurent = "k"', "did you mean 'current'"),
    ],
)
def test_an_invalid_setting_is_refused_with_the_fix(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(ConfigProblems, match=reason):
        configured(tmp_path, text)


def test_keys_are_read_from_the_environment_a_file_or_a_program(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(as_text(OLD) + "\n")
    program = json.dumps([sys.executable, "-c", f"print({as_text(NEW)!r}[:22], end=''); print({as_text(NEW)!r}[22:])"])
    settings = configured(
        tmp_path,
        '[crypto]\ncurrent = "e"\n[crypto.keys.e]\nenv = "K"\n[crypto.keys.f]\nfile = "key"\n'
        f"[crypto.keys.p]\ncommand = {program}",
    )

    cipher = Cipher(keys.read_keys(settings, {"K": as_text(RANDOMNESS + bytes(4))}), "e")

    of_file, of_program = Cipher({"f": OLD}, "f"), Cipher({"p": NEW}, "p")
    assert cipher.decrypt(of_file.encrypt("t", b"1")).data == b"1"
    assert cipher.decrypt(of_program.encrypt("t", b"2")).data == b"2"


def test_all_unreadable_keys_are_reported_with_their_sources_and_without_content(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("half-a-secret")
    failing = json.dumps([sys.executable, "-c", "import sys; sys.exit('secret-on-stderr')"])
    settings = configured(
        tmp_path,
        '[crypto]\ncurrent = "e"\n[crypto.keys.e]\nenv = "K"\n[crypto.keys.f]\nfile = '
        '"key"\n[crypto.keys.g]\nfile = "no"\n'
        f'[crypto.keys.p]\ncommand = {failing}\n[crypto.keys.q]\ncommand = ["/no/such/program"]',
    )

    with pytest.raises(ConfigProblems) as refused:
        keys.read_keys(settings, {})

    error = str(refused.value)
    assert "pgrouse.toml:3: key e: the environment variable K is not set" in error
    assert "key f: the file key does not hold 32 bytes as base64" in error
    assert "key g: the file no cannot be read (No such file or directory)" in error
    assert f"key p: the program {sys.executable} ended with exit code 1" in error
    assert "key q: the program /no/such/program cannot be run" in error
    assert "secret" not in error


def test_subscriptions_in_the_file_are_accepted_through_any_number_of_topics(tmp_path: Path) -> None:
    settings = configured(
        tmp_path,
        '[topics.b]\nhandler = "x:y"\nsubscriptions = ["a"]\n[topics.c]\nhandler = "x:y"\nsubscriptions = ["b"]\n'
        '[crypto]\naccept_from = { "d.*" = ["a"] }',
    )

    assert keys.accepted_topics(settings) == {"b": ["a"], "c": ["b", "a"], "d.*": ["a"]}


def test_keys_that_are_not_random_are_recognized() -> None:
    assert keys.weak_key_reason(bytes(32)) == "its bytes repeat"
    assert keys.weak_key_reason(b"correct-horse-battery-staple-123") == "it is text"
    assert [key for _ in range(1000) if keys.weak_key_reason(key := os.urandom(32))] == []


# What a daemon does.


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def message_crypto(cipher: Cipher, **given: Any) -> MessageCrypto:
    return MessageCrypto(cipher, CryptoSettings(**given), Clock())


def test_the_setting_plain_decides_about_unencrypted_messages(cipher: Cipher) -> None:
    plain = message(payload="1")

    assert message_crypto(cipher).decrypt(plain) is plain
    ended = message_crypto(cipher, unencrypted="reject").decrypt(plain)
    assert isinstance(ended, Settlement)
    assert (ended.kind, "is not encrypted" in str(ended.error)) == (How.REJECT, True)


def test_a_message_whose_key_is_missing_waits_and_is_logged_once_per_period(cipher: Cipher, logged: LogCapture) -> None:
    here = message_crypto(Cipher({"old": OLD}, "old"), missing_key_delay=timedelta(seconds=5))

    ended = [here.decrypt(encrypted_message(cipher)) for _ in range(3)]

    assert all(isinstance(each, Settlement) for each in ended)
    assert {(each.kind, each.after) for each in ended if isinstance(each, Settlement)} == {
        (How.DEFER, timedelta(seconds=5))
    }
    assert [each["event"] for each in logged.entries] == ["crypto.key_missing"]
    here.clock.now = 6.0  # type: ignore[attr-defined]
    here.decrypt(encrypted_message(cipher))
    assert [each["event"] for each in logged.entries] == ["crypto.key_missing"] * 2


def encrypted(here: MessageCrypto, settlement: Settlement) -> Settlement:
    (found,) = here.encrypt_all([settlement])
    return found


def test_output_and_checkpoint_are_encrypted_and_the_checkpoint_is_restored(cipher: Cipher) -> None:
    both = message_crypto(cipher)
    whole = encrypted_message(cipher)

    done = encrypted(both, Settlement(whole, How.COMPLETE, output='{"paid":7}'))
    later = encrypted(both, Settlement(whole, How.DEFER, state='{"step":2}'))

    assert '"paid"' not in str(done.output)
    assert json.loads(str(done.output))[ENCRYPTED_BY] == "new"
    assert cipher.decrypt_json("t", str(done.output), ContentKind.OUTPUT) == '{"paid":7}'
    again = both.decrypt(whole._replace(state=later.state))
    assert isinstance(again, Message)
    assert again.state == '{"step":2}'


def test_a_cleared_checkpoint_remains_cleared(cipher: Cipher) -> None:
    assert (
        encrypted(message_crypto(cipher), Settlement(encrypted_message(cipher), How.DEFER, state="null")).state
        == "null"
    )


def test_other_topics_are_not_encrypted() -> None:
    ended = Settlement(message(payload="1"), How.COMPLETE, output="2", error="3")

    assert encrypted(message_crypto(Cipher({"k": OLD}, "k", topics=["pay"])), ended) is ended


def test_errors_are_stored_as_text_or_as_types_only(cipher: Cipher) -> None:
    ended = Settlement(
        encrypted_message(cipher), How.RETRY, error="Traceback\nValueError: card 4711", error_type="ValueError"
    )
    ended = replace(ended, warnings=(("attempt.error_ignored", "card 4711"),))

    assert "4711" in str(encrypted(message_crypto(cipher), ended).error)
    hidden = encrypted(message_crypto(cipher, error_detail="type"), ended)
    assert str(hidden.error).startswith("ValueError: ")
    assert "4711" not in str(hidden)


def test_a_dropped_output_is_logged_without_its_content(cipher: Cipher) -> None:
    class Odd:
        def __iter__(self) -> Any:
            raise RuntimeError("card 4711")

        __repr__ = __iter__

    for said in ({"card": {4711.5, float("nan")}}, Retry(state=object()), Odd()):
        ended = encrypted(
            message_crypto(cipher, error_detail="type"), outcome.to_settlement(encrypted_message(cipher), said)
        )
        assert ended.error is not None
        assert ended.error.endswith("its text is not stored (crypto.error_detail)")


def test_an_envelope_without_the_header_is_decrypted_and_its_results_are_encrypted() -> None:
    cipher = Cipher({"k": OLD}, "k", topics=["other"])
    here = message_crypto(cipher, error_detail="type")
    raw = message(body=cipher.encrypt("t", b"4711"))

    opened = here.decrypt(raw)

    assert isinstance(opened, Message)
    assert opened.body == b"4711"
    for whole in (raw, opened):
        kept = encrypted(here, Settlement(whole, How.RETRY, output="4711", state="4711", error="4711", error_type="E"))
        assert "4711" not in f"{kept.output}{kept.state}{kept.error}"


def test_a_header_that_only_mentions_the_mark_does_not_count(cipher: Cipher) -> None:
    plain = message(payload="1", headers=json.dumps({"about": ENCRYPTED_BY, "in": {ENCRYPTED_BY: "k"}}))

    assert message_crypto(cipher).decrypt(plain) is plain


def test_a_body_that_is_an_envelope_already_keeps_its_mark(cipher: Cipher) -> None:
    columns = to_columns(NewMessage(topic="t", body=cipher.encrypt("t", b"7"), headers={ENCRYPTED_BY: "old"}))

    assert json.loads(columns["headers"]) == {ENCRYPTED_BY: "old"}


def test_a_foreign_plain_checkpoint_is_rejected_where_plain_is(cipher: Cipher) -> None:
    forged = encrypted_message(cipher, state='{"paid":true}')

    assert isinstance(message_crypto(cipher).decrypt(forged), Message)
    ended = message_crypto(cipher, unencrypted="reject").decrypt(forged)
    assert isinstance(ended, Settlement)
    assert (ended.kind, "its checkpoint is not encrypted" in str(ended.error)) == (How.REJECT, True)
    own = forged._replace(state=cipher.encrypt_json("t", "1", ContentKind.STATE))
    assert isinstance(message_crypto(cipher, unencrypted="reject").decrypt(own), Message)


def test_the_digest_of_a_request_depends_on_keys_and_survives_a_rotation() -> None:
    before, under_both = Cipher({"b": OLD}, "b"), Cipher({"a": NEW, "b": OLD, "c": NEW}, "c")
    digest = hashlib.sha256(b"4711").digest()

    assert before.request_digests(digest) == Cipher({"b": OLD, "c": NEW}, "c").request_digests(digest)[:1]
    assert before.request_digests(digest)[0] in under_both.request_digests(digest)
    assert digest not in under_both.request_digests(digest)


def ways() -> Iterator[Any]:
    async def on_the_loop(payload: Any, ctx: AsyncContext) -> None:
        ctx.completed = True
        raise ValueError(f"card {payload}")

    def in_a_thread(payload: Any, ctx: Context) -> None:
        ctx.completed = True
        raise ValueError(f"card {payload}")

    async def batch(payloads: list[Any], ctx: AsyncBatchContext) -> None:
        raise ValueError(f"card {payloads}")

    first = AckRules(AckPolicy.ACK_FIRST)
    yield pytest.param(
        Handler("t", "m:f", on_the_loop, ExecutionMode.ASYNC, 2, None, is_async=True), id="its transaction"
    )
    yield pytest.param(
        Handler("t", "m:f", in_a_thread, ExecutionMode.THREAD, 2, None), id="its transaction in a thread"
    )
    yield pytest.param(
        Handler("t", "m:f", on_the_loop, ExecutionMode.ASYNC, 2, None, rules=first, is_async=True), id="ack_first"
    )
    batch_options = BatchOptions(1, 0.0, as_items=False)
    yield pytest.param(
        Handler("t", "m:f", batch, ExecutionMode.ASYNC, 2, None, 1, first, batch_options, is_async=True), id="batch"
    )


class RecordingObserver(NoObserver):
    """A double of the telemetry that records attempts."""

    def __init__(self) -> None:
        self.ends: list[Settlement] = []

    def attempt(self, messages: Sequence[Message], *, is_batch: bool) -> Any:
        ends = self.ends

        class Span(NoSpan):
            def end(self, settlements: Sequence[Settlement], *, lost: bool) -> None:
                ends.extend(settlements)

        return Span()


@asynccontextmanager
async def encrypting_executor(
    cipher: Cipher, handler: Handler, observer: Observer = NO_OBSERVER
) -> AsyncIterator[HandlerExecutor]:
    """An executor that stores only the types of errors."""
    in_flight, settle_buffer = InFlight(), SettleBuffer(WakeEvents())

    async def complete_first(messages: Any) -> list[int]:
        return []

    runtime: Any = SimpleNamespace(
        stopping=False,
        encryption=message_crypto(cipher, error_detail="type"),
        holds=in_flight.holds,
        complete_first=complete_first,
        completed=lambda *messages: None,
    )
    executor = HandlerExecutor(
        {"t": handler}, config.WorkerSettings(), in_flight, settle_buffer, runtime, {}, lambda: None, None, observer
    )
    try:
        yield executor
    finally:
        await executor.close()


@pytest.mark.parametrize("handler", list(ways()))
async def test_an_error_after_the_completion_is_logged_by_its_type(
    cipher: Cipher, handler: Handler, logged: LogCapture
) -> None:
    async with encrypting_executor(cipher, handler) as executor:
        executor.add([encrypted_message(cipher, "4711")], 0)
        await until(lambda: logged.entries)

    (entry,) = logged.entries
    assert entry["event"] == "message.ended_after_completion"
    assert (entry["reason"].startswith("ValueError: "), "4711" in str(entry)) == (True, False)


@pytest.mark.parametrize("batch_options", [None, BatchOptions(1, 0.0, as_items=False)], ids=["single", "batch"])
class TestSettling:
    async def test_a_span_records_what_may_be_stored(self, cipher: Cipher, batch_options: BatchOptions | None) -> None:
        async def fail(payload: Any) -> None:
            raise ValueError(f"card {payload}")

        observer = RecordingObserver()
        handler = Handler("t", "m:f", fail, ExecutionMode.ASYNC, 1, None, 1, batch_options=batch_options)
        async with encrypting_executor(cipher, handler, observer) as executor:
            executor.add([encrypted_message(cipher, "4711")], 0)
            await until(lambda: executor.settle_buffer.waiting)

            (kept,) = executor.settle_buffer.waiting
        assert (
            [each.error for each in observer.ends]
            == [kept.error]
            == ["ValueError: its text is not stored (crypto.error_detail)"]
        )

    async def test_an_output_is_encrypted_once(self, cipher: Cipher, batch_options: BatchOptions | None) -> None:
        async def pay(payload: Any) -> Any:
            return payload

        handler = Handler("t", "m:f", pay, ExecutionMode.ASYNC, 1, None, 1, batch_options=batch_options)
        async with encrypting_executor(cipher, handler) as executor:
            executor.add([encrypted_message(cipher, "4711")], 0)
            await until(lambda: executor.settle_buffer.waiting)

            (kept,) = executor.settle_buffer.waiting
        assert cipher.decrypt_json("t", str(kept.output), ContentKind.OUTPUT) == "4711"


def test_the_page_of_an_encrypted_message_says_so_and_offers_no_edit(cipher: Cipher) -> None:
    body = encrypted_message(cipher).body or b""
    row = {
        "payload": None,
        "headers": None,
        "state_kept": cipher.encrypt_json("t", "1", ContentKind.STATE),
        "output": None,
    }
    row |= {
        "body": body[:512],
        "body_bytes": len(body),
        "state": "ready",
        "redriven_as": None,
        "payload_bytes": None,
    }

    shown = message_detail.contents(row)

    assert shown["body"]["text"] == f"encrypted (key new, {len(body)} bytes)"
    assert shown["state_kept"]["text"].startswith("encrypted (key new, ")
    assert message_detail.allowed_actions(row)["edit"] is False


def test_a_key_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(as_text(os.urandom(32)))
    (tmp_path / "key").chmod(stat.S_IRUSR | stat.S_IROTH)
    subject = DoctorTarget(configured(tmp_path, '[crypto]\ncurrent = "k"\n[crypto.keys.k]\nfile = "key"'), 1.0)

    (found,) = encryption.check_keys(subject)

    assert (found.level, "other users can read the file key" in found.what) == ("warn", True)
