"""Each sink against a local server: what it sends, which answers it accepts, and how long it waits."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import socket
import sys
import threading
import time
from contextlib import nullcontext, suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pgrouse.alerts import sinks
from pgrouse.alerts.notice import Notice
from pgrouse.alerts.sink import SendFailed, SinkTable
from pgrouse.alerts.sinks import TYPES, read_sink
from pgrouse.config.alerts import AlertSink
from pgrouse.errors import ConfigError
from tests.daemon.receiver import Mailbox, Receiver
from tests.server.alive import lives
from tests.server.deadline import eventually
from tests.unit.alerts.test_alert_notice import AT, DEEP, QUEUE, group, notice

# apprise imports a module that Python 3.13 has no more.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated")


def table(**settings: Any) -> SinkTable:
    return read_sink(AlertSink.model_validate({"name": "ops", **settings}))


def send(given: Notice | None = None, timeout_s: float = 60, **settings: Any) -> str:
    return table(**settings).send(given or notice(), timeout_s)


# webhook


def test_a_webhook_receives_json_and_its_answer_is_reported(receiver: Receiver) -> None:
    assert send(webhook=receiver.url("/hook?room=1"), headers={"X-Room": "ops"}) == "204 No Content"

    (request,) = receiver.requests
    assert (request.path, request.headers["x-room"], request.id) == ("/hook?room=1", "ops", "1d")
    assert request.json == notice().payload()


@pytest.mark.parametrize("secret", ["plain text", "whsec_" + base64.b64encode(b"\x00binary key").decode()])
def test_a_webhook_is_signed_so_that_the_receiver_can_verify_it(receiver: Receiver, secret: str) -> None:
    send(webhook=receiver.url(), secret=secret)

    (request,) = receiver.requests
    key = b"\x00binary key" if secret.startswith("whsec_") else secret.encode()
    signed = b".".join([request.id.encode(), request.headers["webhook-timestamp"].encode(), request.body])
    expected = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    assert request.headers["webhook-signature"] == f"v1,{expected}"
    assert abs(int(request.headers["webhook-timestamp"]) - time.time()) < 60


def test_the_password_of_an_address_is_sent_as_basic_authentication(receiver: Receiver) -> None:
    send(webhook=receiver.url().replace("//", "//ann:s%20p@"))

    assert receiver.requests[0].headers["authorization"] == "Basic " + base64.b64encode(b"ann:s p").decode()


@pytest.mark.parametrize(
    ("status", "refused"),
    [(400, True), (422, True), (401, False), (404, False), (429, False), (503, False), (302, False)],
)
def test_a_refused_alert_is_not_delivered(receiver: Receiver, status: int, refused: bool) -> None:
    receiver.refuse(status, "not like that", Location="/elsewhere")

    with pytest.raises(SendFailed, match=f"answered {status}.*not like that") as failed:
        send(webhook=receiver.url())

    assert failed.value.refused is refused
    assert len(receiver.requests) == 1, "no redirection is followed"


def test_the_delay_of_the_next_try_is_read_from_the_answer(receiver: Receiver) -> None:
    receiver.refuse(429, Retry_After="17")

    with pytest.raises(SendFailed) as failed:
        send(webhook=receiver.url())

    assert failed.value.retry_after_s == 17


@pytest.mark.parametrize("begin", [b"\r\nX-", b"\r\nContent-Length: 9999\r\n\r\n", b"\r\nConnection: close\r\n\r\n"])
def test_a_server_that_answers_byte_by_byte_is_abandoned(begin: bytes) -> None:
    def drip(listening: socket.socket) -> None:
        talking, _ = listening.accept()
        with talking, suppress(OSError):
            talking.sendall(b"HTTP/1.1 200 OK" + begin)
            while True:
                talking.sendall(b"x")
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=drip, args=[listening], daemon=True).start()
        began = time.monotonic()

        with pytest.raises(SendFailed, match=r"no answer within 0\.4s"):
            send(webhook=f"http://127.0.0.1:{listening.getsockname()[1]}/", timeout_s=0.4)

    assert time.monotonic() - began < 15, "it would have taken forty seconds"


def test_a_refused_connection_is_reported_in_words() -> None:
    # Bound, so that no other process gets it, and not listened to.
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))

        with pytest.raises(SendFailed, match="ConnectionRefusedError"):
            send(webhook=f"http://127.0.0.1:{silent.getsockname()[1]}/")


# alertmanager


def test_alertmanager_receives_an_alert_for_each_group(receiver: Receiver) -> None:
    given = notice(group(), group(kind="backlog", result=None, fingerprint=None, topic="slow", fix="add workers"))

    send(given, alertmanager=receiver.url("/am/"), labels={"severity": "page"})

    (request,) = receiver.requests
    dead, backlog = request.json
    assert request.path == "/am/api/v2/alerts"
    assert dead["labels"] == {
        "alertname": "PgrouseDeadMessages",
        "severity": "page",
        "kind": "dead_message",
        "topic": "orders",
        "result": "failed",
        "fingerprint": "abc",
    }
    assert backlog["labels"] == {"alertname": "PgrouseBacklog", "severity": "page", "kind": "backlog", "topic": "slow"}
    assert backlog["annotations"]["fix"] == "add workers"


def test_alertmanager_receives_severity_queue_and_link(receiver: Receiver) -> None:
    error = f"{DEEP}ConnectionError: no route\n"
    given = notice(group(error=error), group(kind="backlog", severity="page", result=None, topic="slow"), queue=QUEUE)

    send(given, alertmanager=receiver.url())

    dead, backlog = receiver.requests[0].json
    assert [each["labels"]["severity"] for each in (dead, backlog)] == ["ticket", "page"]
    assert {each["labels"]["environment"] for each in (dead, backlog)} == {"production"}
    assert dead["generatorURL"] == "https://queue.example.com/dead?topic=orders"
    assert backlog["generatorURL"] == "https://queue.example.com/messages?topic=slow&state=ready"
    assert [each["annotations"]["runbook_url"] for each in (dead, backlog)] == [
        "https://queue.example.com/runbooks#dead-messages",
        "https://queue.example.com/runbooks#old-backlog",
    ]
    # With two kinds in one message, none is the right one.
    assert given.runbook is None
    assert "pgrouse redrive --topic orders" in dead["annotations"]["fix"]
    assert dead["annotations"]["description"].endswith("ConnectionError: no route\n")


def test_a_firing_alert_ends_later_and_a_resolved_one_has_ended(receiver: Receiver) -> None:
    began = group(kind="backlog", result=None)
    send(notice(began), alertmanager=receiver.url())
    send(
        notice({**began, "status": "resolved", "last_at": (AT + timedelta(hours=1)).isoformat()}),
        alertmanager=receiver.url(),
    )

    firing, resolved = (request.json[0] for request in receiver.requests)
    assert firing["labels"] == resolved["labels"], "else Alertmanager would not know that it is the same"
    assert datetime.fromisoformat(firing["startsAt"]) == AT
    assert datetime.fromisoformat(firing["endsAt"]) > AT + timedelta(hours=1)
    assert datetime.fromisoformat(resolved["endsAt"]) == AT + timedelta(hours=1)


# command

PROGRAM = """
import json, os, sys
saw = {"id": json.load(sys.stdin)["id"], "environ": dict(os.environ), "open": os.listdir("/proc/self/fd")}
open(sys.argv[1], "w").write(json.dumps(saw))
"""


def command(tmp_path: Path, program: str, *arguments: str) -> list[str]:
    (tmp_path / "program.py").write_text(program)
    return [sys.executable, str(tmp_path / "program.py"), *arguments]


def test_a_command_receives_json_and_nothing_of_the_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "hidden")
    monkeypatch.setenv("ROOM", "ops")
    inherited = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(inherited, True)
    argv = command(tmp_path, PROGRAM, str(tmp_path / "out"))

    assert send(command=argv, environment=["ROOM"]) == "exit status 0"
    os.close(inherited)

    saw = json.loads((tmp_path / "out").read_text())
    assert (saw["id"], saw["environ"]["PGROUSE_ALERT_ID"], saw["environ"]["ROOM"]) == ("1d", "1d", "ops")
    assert "PGPASSWORD" not in saw["environ"]
    assert set(saw["open"]) <= {"0", "1", "2", "3"}, "3 is the folder that it lists"


@pytest.mark.parametrize(("status", "refused"), [(1, False), (65, True)])
def test_a_command_that_fails_reports_the_reason(tmp_path: Path, status: int, refused: bool) -> None:
    argv = command(tmp_path, f"import sys; sys.stderr.write('no room'); sys.exit({status})")

    with pytest.raises(SendFailed, match=f"ended with status {status}: no room") as failed:
        send(command=argv)

    assert failed.value.refused is refused


def test_a_command_that_takes_too_long_is_killed_with_its_children(tmp_path: Path) -> None:
    program = (
        "import os, subprocess, sys; child = subprocess.Popen(['sleep', '600']); "
        "print(child.pid, file=open(sys.argv[1], 'w')); child.wait()"
    )
    started = tmp_path / "child"
    argv = command(tmp_path, program, str(started))

    began = time.monotonic()
    # One that was killed before it had started anything proves nothing: it gets more time.
    for timeout_s in (0.7, 7, 50):
        with pytest.raises(SendFailed, match="was killed"):
            send(command=argv, timeout_s=timeout_s)
        if started.exists() and started.read_text().endswith("\n"):
            break

    assert time.monotonic() - began < 100, "it would have slept for ten minutes"
    child = int(started.read_text())
    eventually(lambda: not lives(child))


def test_a_missing_program_is_reported() -> None:
    with pytest.raises(SendFailed, match="/no/such cannot be started: No such file"):
        send(command=["/no/such"])


# sentry and apprise


def test_sentry_receives_an_event_that_it_counts_once(receiver: Receiver) -> None:
    given = notice()
    object.__setattr__(given, "id", "7c9e6679-7425-40de-944b-e07fc1f90ae7")

    assert send(given, sentry=f"http://publickey@127.0.0.1:{receiver.port}/42") == "204 No Content"

    (request,) = receiver.requests
    event = json.loads(request.body.split(b"\n")[2])
    assert request.path == "/api/42/envelope/"
    assert "sentry_key=publickey" in request.headers["x-sentry-auth"]
    assert event["event_id"] == "7c9e6679742540de944be07fc1f90ae7"
    assert (event["level"], event["tags"]["topic"], event["fingerprint"]) == ("error", "orders", ["pgrouse", "0" * 32])


def test_a_mail_is_sent_by_apprise() -> None:
    mailbox = Mailbox()
    hostile = group(error="<b>bold</b>\rBcc: all@example.com")

    output = send(
        notice(hostile),
        url=f"mailto://127.0.0.1:{mailbox.port}?from=queue@example.com&to=ops@example.com&mode=insecure",
    )

    mailbox.stop()
    (mail,) = mailbox.mails
    assert output == "accepted"
    assert mail["subject"] == "5 messages failed in orders: <b>bold</b> Bcc: all@example.com"
    assert mail["bcc"] is None
    body = mail.get_body(("plain", "html"))
    assert body is not None
    text = body.get_content()
    assert ("<b>" not in text) if body.get_content_type() == "text/html" else ("<b>bold</b>" in text)


@pytest.mark.parametrize(
    ("address", "passwords"),
    [
        ("mailto://queue:long+secret@127.0.0.1:{port}?from=queue@example.com&to=ops@example.com", []),
        ("mailto://127.0.0.1:{port}?user=queue&pass=long+secret&from=queue@example.com&to=ops@example.com", []),
        ("MAILTO://queue:long+secret@127.0.0.1:{port}?from=queue@example.com&to=ops@example.com&mode=starttls", []),
        (
            "mailto://queue:longsecret@127.0.0.1:{port}?from=queue@example.com&to=o@example.com&mode=insecure",
            ["longsecret"],
        ),
    ],
)
def test_a_password_of_a_mail_is_sent_without_encryption_only_if_the_address_says_so(
    address: str, passwords: list[str]
) -> None:
    mailbox = Mailbox()

    with suppress(SendFailed) if not passwords else nullcontext():
        send(url=address.format(port=mailbox.port))

    mailbox.stop()
    assert mailbox.passwords == passwords
    assert len(mailbox.mails) == len(passwords)


def test_an_alert_that_apprise_could_not_send_is_not_delivered(receiver: Receiver) -> None:
    receiver.refuse(500)

    with pytest.raises(SendFailed, match="apprise: "):
        send(url=receiver.url().replace("http://", "json://"))


# Settings


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"url": "nonsense://x"}, "not one that apprise knows"),
        ({"sentry": "http://nothing"}, "not a DSN of Sentry"),
        ({"webhook": "http://x/", "secret": "whsec_!"}, "not base64"),
    ],
)
def test_an_invalid_address_is_an_error_without_the_address(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        table(**settings).check()

    assert settings.get("secret", "nothing at all") not in str(refused.value)


@pytest.mark.parametrize("package", ["apprise", "sentry_sdk.envelope"])
def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    given = {"url": "json://x"} if package == "apprise" else {"sentry": "http://k@x/1"}

    with pytest.raises(ConfigError, match=r"pip install 'pgrouse\[(alerts|sentry)\]'"):
        table(**given).check()


def test_every_part_of_an_address_that_may_be_a_secret_is_hidden() -> None:
    settings = table(
        webhook="https://ann:pa%20ssword@hooks.example.com/services/T0000/tokentoken?key=querysecret",
        secret="signing secret",
        headers={"Authorization": "Bearer abcdef"},
    )

    assert {"pa%20ssword", "pa ssword", "tokentoken", "querysecret", "signing secret", "Bearer abcdef"} <= set(
        settings.secrets()
    )


def test_the_host_of_an_address_is_a_secret_for_apprise_only() -> None:
    bot = table(url="tgram://ann@123456789:AAtoken%20of/chat")
    here = table(url="json://localhost:8080/path")
    hook = table(webhook="https://hooks.example.com/")

    assert {"123456789:AAtoken%20of", "123456789", "AAtoken%20of", "AAtoken of"} <= set(bot.secrets())
    assert "localhost:8080" not in here.secrets()
    assert "hooks.example.com" not in hook.secrets()


def test_an_address_that_is_not_parsed_yet_is_hidden() -> None:
    unread = AlertSink.model_validate(
        {"name": "ops", "webhook": "https://x/tokentoken", "headers": {"A": "Bearer abc"}}
    )

    assert not any(secret in f"{unread!r} {unread.model_dump_json()}" for secret in ("tokentoken", "Bearer abc"))


def test_every_file_of_the_folder_is_a_type_of_sink() -> None:
    files = {path.stem for path in Path(sinks.__file__).parent.glob("*.py")} - {"__init__"}

    assert set(TYPES) == files
    assert all(name in each.model_fields for name, each in TYPES.items())
