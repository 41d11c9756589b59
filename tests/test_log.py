"""What is logged, in which form, and what is never logged."""

from __future__ import annotations

import contextvars
import io
import json
import logging
import os
import pty
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import pytest
import structlog

from pgrouse import log
from pgrouse.client.message import Message
from pgrouse.config.alerts import AlertsSettings
from pgrouse.config.config import Config, DatabaseSettings, LogSettings
from pgrouse.handlers import current_attempt

Setup = Callable[..., io.StringIO]


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Undo what the setup changes for the whole process."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in (*log.VERBOSE_LIBRARIES, *log.LIBRARIES_LOGGING_SECRETS):
        logging.getLogger(name).setLevel(logging.NOTSET)
    logging.captureWarnings(False)
    structlog.reset_defaults()


@pytest.fixture
def setup() -> Setup:
    """Sets logging up and returns where it writes."""

    def setup(dsn: str = "", **settings: Any) -> io.StringIO:
        stream = io.StringIO()
        log.setup(Config(database=DatabaseSettings(dsn=dsn), log=LogSettings(**{"format": "json", **settings})), stream)
        return stream

    return setup


@pytest.fixture
def message() -> Callable[..., Message]:
    """`message("mail")` is a claimed message."""
    defaults = dict.fromkeys(Message._fields)
    return lambda topic, **fields: Message(**{**defaults, "id": 7, "topic": topic, "attempt": 1, **fields})


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return the logged JSON objects."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_one_line_of_json_with_time_level_and_name_first(setup: Setup) -> None:
    stream = setup()

    structlog.get_logger().info("message.retried", message_id=7, error="a\nb")

    (event,) = lines(stream)
    assert list(event) == ["timestamp", "level", "event", "message_id", "error"]
    assert (event["level"], event["event"], event["message_id"], event["error"]) == (
        "info",
        "message.retried",
        7,
        "a\nb",
    )
    assert event["timestamp"].endswith("Z")


def test_loggers_of_libraries_have_the_same_format(setup: Setup) -> None:
    stream = setup()

    logging.getLogger("shop.mail").warning("sent %s mails", 3)

    (event,) = lines(stream)
    assert (event["logger"], event["level"], event["event"]) == ("shop.mail", "warning", "sent 3 mails")


def test_warnings_of_python_are_logged(setup: Setup) -> None:
    stream = setup()

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old", DeprecationWarning, stacklevel=1)

    (event,) = lines(stream)
    assert (event["logger"], event["level"]) == ("py.warnings", "warning")


def test_events_below_the_level_are_omitted(setup: Setup) -> None:
    stream = setup(level="warning")

    structlog.get_logger().info("message.retried")
    logging.getLogger("shop").info("no")
    structlog.get_logger().warning("message.failed")

    assert [event["event"] for event in lines(stream)] == ["message.failed"]


@pytest.mark.parametrize("level", ["debug", "info"])
def test_verbose_libraries_are_logged_from_warning_on_at_any_level(setup: Setup, level: str) -> None:
    stream = setup(level=level)

    logging.getLogger("psycopg").debug("sending")
    logging.getLogger("psycopg.pool").info("connection given by pool")
    logging.getLogger("psycopg.pool").warning("no connection for 30 s")

    assert [event["event"] for event in lines(stream)] == ["no connection for 30 s"]


def test_lines_within_a_handler_name_its_message(setup: Setup, message: Callable[..., Message]) -> None:
    stream, context = setup(), contextvars.copy_context()
    first = message("mail", attempt=2)

    context.run(current_attempt.set_messages, [first])
    context.run(logging.getLogger("shop").warning, "slow")
    context.run(structlog.get_logger().info, "greeting.said", topic="its own")
    context.run(structlog.get_logger().info, "about another", message_id=999)
    logging.getLogger("shop").warning("outside")

    within, own, other, outside = lines(stream)
    assert (within["message_id"], within["topic"], within["attempt"]) == (first.id, "mail", 2)
    assert (own["message_id"], own["topic"]) == (first.id, "its own")
    assert "attempt" not in other
    assert "message_id" not in outside


def test_lines_within_a_batch_handler_say_how_many_messages_it_has(
    setup: Setup, message: Callable[..., Message]
) -> None:
    stream, context = setup(), contextvars.copy_context()

    context.run(current_attempt.set_messages, [message("mail"), message("mail")])
    context.run(logging.getLogger("shop").warning, "slow")

    (event,) = lines(stream)
    assert (event["topic"], event["messages"], event.get("message_id")) == ("mail", 2, None)


def test_a_second_setup_replaces_the_first(setup: Setup) -> None:
    first, second = setup(), setup()

    structlog.get_logger().info("daemon.started")

    assert (len(lines(first)), len(lines(second))) == (0, 1)


def test_passwords_are_hidden_everywhere(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", "of the environment")
    stream = setup(dsn="host=h password=swordfish")

    structlog.get_logger().info(
        "a.b", text="swordfish", nested={"x": ["host=h password=other1"]}, url="pq://u:other2@h"
    )
    logging.getLogger("lib").error("cannot reach %s with %s", "pq://u:other3@h", "of the environment")
    try:
        int("password=other4")
    except ValueError:
        structlog.get_logger().exception("loop.failed", cause=ConnectionError("pq://u:other5@h"))

    written = stream.getvalue()
    assert not any(secret in written for secret in ("swordfish", "other", "environment"))
    assert len(lines(stream)) == 3


def test_libraries_that_log_tokens_of_sinks_are_never_logged_below_warning(setup: Setup) -> None:
    stream = setup(level="debug")

    for name in ("apprise", "urllib3.connectionpool", "requests", "requests_oauthlib", "oauthlib.oauth1"):
        logging.getLogger(name).debug("POST https://api.telegram.org/botTOKEN/sendMessage")
        logging.getLogger(name).info("said")
        logging.getLogger(name).warning("it failed")

    assert [event["event"] for event in lines(stream)] == ["it failed"] * 5


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("tgram://123456789:AAtoken-of_the_bot/4711", "123456789:AAtoken-of_the_bot"),
        ("pover://user@TokenOfAnApp", "TokenOfAnApp"),
        ("slack://TokenAAAA/TokenBBBB/TokenCCCC", "TokenAAAA"),
    ],
)
def test_a_token_used_as_a_host_is_hidden(url: str, token: str) -> None:
    stream = io.StringIO()
    sinks = AlertsSettings.model_validate({"to": [{"name": "ops", "url": url}]})
    log.setup(Config(log=LogSettings(format="json", level="debug"), alerts=sinks), stream)

    logging.getLogger("apprise").warning("cannot reach https://api.example.com/bot%s/send", token)
    structlog.get_logger().error("alert.failed", reason=f"token {token}")

    assert len(lines(stream)) == 2
    assert not any(half in stream.getvalue() for half in token.split(":"))


def test_a_traceback_is_logged_without_the_values_of_variables(setup: Setup) -> None:
    stream = setup(format="console")
    payload = {"note": "the customer's" + " secret"}

    try:
        payload["total"]
    except KeyError:
        structlog.get_logger().exception("message.failed")

    assert "Traceback" in stream.getvalue()
    assert "the customer's secret" not in stream.getvalue()


def test_an_event_with_any_value_can_be_logged(setup: Setup) -> None:
    stream = setup()

    structlog.get_logger().info("a.b", error=ValueError("x"), missing=None, number=1.5, flag=True, half="\ud800")

    (event,) = lines(stream)
    assert (event["error"], event["missing"], event["number"], event["flag"], event["half"]) == (
        "x",
        None,
        1.5,
        True,
        "\ud800",
    )


@pytest.fixture
def terminal() -> Iterator[tuple[TextIO, Callable[[], str]]]:
    """A terminal to write to, and a function that reads what was written."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:

        def read() -> str:
            stream.flush()
            written = b""
            while not written.endswith(b"\n"):
                written += os.read(ours, 65536)
            return written.decode()

        yield stream, read
    os.close(ours)


@pytest.mark.parametrize(("no_color", "colored"), [("", True), ("1", False)])
def test_a_terminal_gets_readable_coloured_lines_unless_no_color_is_set(
    terminal: tuple[TextIO, Callable[[], str]], monkeypatch: pytest.MonkeyPatch, no_color: str, colored: bool
) -> None:
    stream, read = terminal
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.delenv("FORCE_COLOR", raising=False)

    log.setup(Config(), stream)
    structlog.get_logger().info("daemon.started", worker="w1")

    written = read()
    assert "daemon.started" in written
    assert not written.startswith("{")
    assert ("\x1b[" in written) is colored
