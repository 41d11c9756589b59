"""Encrypted topics over HTTP: payloads are encrypted, and the server decrypts nothing."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pgrouse import Cipher
from pgrouse.config.config import load
from pgrouse.crypto.envelope import ENCRYPTED_BY
from pgrouse.crypto.keyless_cipher import load_cipher_or_keyless
from tests.api.site import Site, code
from tests.sql.queue import Queue


@pytest.fixture(scope="module")
def cipher() -> Cipher:
    return Cipher({"k": os.urandom(32)}, "k", ["pay.*"])


@pytest.fixture(autouse=True)
def _encrypting(site: Site, cipher: Cipher) -> Iterator[None]:
    site.app.state.cipher = cipher
    yield
    site.app.state.cipher = None


def publish(http: httpx.Client, way: str, topic: str) -> int:
    message = {"topic": topic, "payload": {"card": "4711"}}
    if way == "batch":
        answer = http.post("/v1/messages/batch", json={"messages": [message]}).json()["results"][0]
    elif way == "content":
        answer = http.post(f"/v1/topics/{topic}/messages", json=message["payload"]).json()
    else:
        headers = {"Idempotency-Key": topic} if way == "once" else {}
        answer = http.post("/v1/messages", json=message, headers=headers).json()
    return int(answer["id"])


@pytest.mark.parametrize("way", ["one", "batch", "content", "once"])
def test_a_payload_is_encrypted_and_the_server_never_decrypts_it(
    http: httpx.Client, queue: Queue, cipher: Cipher, way: str
) -> None:
    topic = f"pay.{way}"
    published = publish(http, way, topic)

    stored = queue.message(published)
    assert (stored.payload, stored.headers) == (None, {ENCRYPTED_BY: "k"})
    assert cipher.decrypt_payload(topic, stored.body) == ('{"card":"4711"}', None)
    described = {"key": "k", "bytes": len(stored.body)}
    shown = http.get(f"/v1/messages/{published}").json()
    assert (shown["payload"], shown["body"], shown["encrypted"]) == (None, None, described)
    (claimed,) = http.post("/v1/claim", json={"topics": [topic]}).json()["messages"]
    assert claimed["encrypted"] == described
    assert cipher.decrypt_payload(topic, base64.b64decode(claimed["body"])) == ('{"card":"4711"}', None)


def test_other_topics_are_not_encrypted(http: httpx.Client, queue: Queue) -> None:
    published = publish(http, "one", "other")

    assert queue.message(published).payload == {"card": "4711"}
    assert http.get(f"/v1/messages/{published}").json()["encrypted"] is None


def test_an_idempotent_request_runs_once_and_its_record_confirms_no_guess(
    site: Site, http: httpx.Client, queue: Queue
) -> None:
    first, second = os.urandom(32), os.urandom(32)
    asked = json.dumps({"topic": "pay.pin", "payload": "4711"}).encode()
    sent = {"Idempotency-Key": "pin-1", "Content-Type": "application/json"}
    site.app.state.cipher = Cipher({"b": first}, "b")
    published = http.post("/v1/messages", content=asked, headers=sent).json()["id"]

    kept = queue.value("SELECT digest FROM messages.web_request WHERE key = 'pin-1'")
    assert kept != hashlib.sha256(b"/v1/messages?\n" + asked).digest()
    for keys in ({"b": first, "c": second}, {"a": second, "b": first}):
        site.app.state.cipher = Cipher(keys, "b")
        again = http.post("/v1/messages", content=asked, headers=sent)
        assert (again.json()["id"], again.headers.get("Idempotent-Replayed")) == (published, "true")
    other = http.post("/v1/messages", content=asked.replace(b"4711", b"0815"), headers=sent)
    assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")


def test_an_edit_of_the_payload_and_an_append_are_refused(http: httpx.Client, queue: Queue) -> None:
    published = publish(http, "one", "pay.edit")

    edited = http.patch(f"/v1/messages/{published}", json={"payload": 1})
    appended = http.post("/v1/messages", json={"topic": "pay.a", "payload": 1, "key": "k", "on_conflict": "append"})

    assert (edited.status_code, queue.message(published).payload) == (422, None)
    assert "is encrypted" in edited.text
    assert (appended.status_code, code(appended)) == (422, "invalid_message")


def test_a_server_without_the_key_publishes_nothing_to_encrypted_topics(
    site: Site, http: httpx.Client, queue: Queue, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "pgrouse.toml").write_text(
        '[crypto]\ncurrent = "k"\ntopics = ["pay.*"]\n[crypto.keys.k]\nfile = "none"'
    )
    site.app.state.cipher = load_cipher_or_keyless(load(tmp_path / "pgrouse.toml", environ={}))

    refused = http.post("/v1/messages", json={"topic": "pay.locked", "payload": "4711"})

    assert (refused.status_code, code(refused)) == (422, "invalid_message")
    assert "this server could not read its key" in refused.text
    assert queue.value("SELECT count(*) FROM messages.message WHERE topic = 'pay.locked'") == 0
    assert http.post("/v1/messages", json={"topic": "plain", "payload": 1}).status_code == 201
