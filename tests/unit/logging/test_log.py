"""What is logged, in which form, and what is never logged."""

from __future__ import annotations

import contextvars
import decimal
import io
import json
import logging
import math
import os
import pty
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import pytest
import structlog

from pgrouse.client.message import Message
from pgrouse.config.alerts import AlertsSettings
from pgrouse.config.config import Config, DatabaseSettings, LogSettings
from pgrouse.handlers.attempt import current_attempt
from pgrouse.logging import log, log_event

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

    logging.getLogger("asyncio").info("Using selector: EpollSelector")
    logging.getLogger("uvicorn.error").info("Started server process [1]")
    logging.getLogger("asyncio").warning("socket.send() raised exception.")

    assert [event["event"] for event in lines(stream)] == ["socket.send() raised exception."]


def test_a_driver_whose_failures_are_events_of_ours_logs_no_texts_of_its_own(setup: Setup) -> None:
    stream = setup(level="debug")

    logging.getLogger("psycopg").warning("error ignored in rollback on <psycopg.AsyncConnection [BAD] at 0x7f00>")
    logging.getLogger("psycopg.pool").warning("error connecting in 'pool-1': refused")

    assert lines(stream) == []


def test_the_same_line_of_a_library_about_another_object_is_the_same_event(setup: Setup) -> None:
    stream = setup()

    for each in (object(), object()):
        logging.getLogger("asyncio").error("Task was destroyed but it is pending! %r", each)

    assert {event["event"] for event in lines(stream)} == {"Task was destroyed but it is pending! <object object>"}


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
        "\\ud800",
    )


class Raises:
    """An object that raises whatever is done with it."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class Proxy(Raises):
    """As proxies of frameworks do outside of a request."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class Panics:
    """As objects of extensions do: their panics are no Exceptions."""

    def __str__(self) -> str:
        raise BaseException("panic")  # noqa: TRY002


class Text(str):
    """A text whose methods raise."""

    __slots__ = ()

    def __str__(self) -> str:
        raise RuntimeError("no text")

    encode = replace = isascii = __len__ = __str__  # type: ignore[assignment]


class OddError(Exception):
    __str__ = __repr__ = Raises.__str__  # type: ignore[assignment]


def cycle() -> list[Any]:
    made: list[Any] = []
    made.append(made)
    return made


def nested(depth: int) -> Any:
    made: Any = 0
    for _ in range(depth):
        made = [made]
    return made


def wide() -> Any:
    made: Any = "x"
    for _ in range(3):
        made = [made] * 100
    return made


def chain(length: int) -> BaseException | None:
    made: BaseException | None = None
    for nth in range(length):
        link = ValueError(nth)
        link.__cause__, made = made, link
    return made


def with_odd_notes() -> ValueError:
    made = ValueError("n")
    made.__notes__ = 5  # type: ignore[assignment]
    return made


# Each is made for the test that needs it: some are large.
ODD_VALUES: dict[str, Callable[[], Any]] = {
    "integer": lambda: 10**5_000,
    "negative integer": lambda: -(10**5_000),
    "integers": lambda: {"n": [10**5_000], 10**5_000: 1},
    "set of integers": lambda: {10**5_000},
    "infinity": lambda: -math.inf,
    "no number": lambda: [math.nan, {"n": math.nan}],
    "decimal": lambda: decimal.Decimal("NaN"),
    "cycle": cycle,
    "deep": lambda: nested(20_000),
    "wide": wide,
    "long": lambda: "x" * 5_000_000,
    "long in a list": lambda: ["x" * 100_000] * 100,
    "many": lambda: list(range(100_000)),
    "many keys": lambda: {str(nth): nth for nth in range(100_000)},
    "long key": lambda: {"k" * 100_000: 1},
    "keys": lambda: {None: 1, True: 2, 3: 4, (1, 2): 5, "3": 6, 1.5: 7, Raises(): 8},
    "half a pair": lambda: {"\udfff": "\ud800"},
    "nul": lambda: "a\x00b",
    "lines": lambda: "a\nb\r\x1b[31mc",
    "bytes": lambda: b"\xff" * 1_000_000,
    "generator": lambda: (each for each in [1]),
    "raises": Raises,
    "panics": Panics,
    "text that raises": lambda: Text("x"),
    "number of a class": lambda: type("Number", (int,), {"__str__": Raises.__str__, "__repr__": Raises.__str__})(7),
    "error": lambda: chain(5_000),
    "error that raises": lambda: OddError("x"),
    "odd notes": with_odd_notes,
    "class": lambda: Raises,
}


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("name", [*ODD_VALUES, "proxy"])
def test_any_value_leaves_an_event_one_bounded_line(setup: Setup, name: str, style: str) -> None:
    stream, value = setup(format=style), ODD_VALUES.get(name, Proxy)()

    structlog.get_logger().info("odd", value=value, after="kept")

    (line,) = stream.getvalue().removesuffix("\n").split("\n")
    assert len(line) < 500_000
    assert "odd" in line
    assert "kept" in line
    assert line.isprintable()
    if style == "json":
        json.loads(line, parse_constant=pytest.fail)
        line.encode("ascii")


@pytest.mark.parametrize("name", ODD_VALUES)
def test_any_value_can_be_the_event_or_belong_to_a_line_of_a_library(setup: Setup, name: str) -> None:
    stream, value = setup(), ODD_VALUES[name]()

    structlog.get_logger().info(value)
    logging.getLogger("library").warning(value)
    logging.getLogger("library").warning("value %s", value)
    logging.getLogger("library").warning("value %d", value, exc_info=(ValueError, value, None))
    structlog.get_logger().bind(bound=value).error("failed", exc_info=value)

    assert [each["level"] for each in lines(stream)] == ["info", "warning", "warning", "warning", "error"]


@pytest.mark.parametrize("name", ODD_VALUES)
def test_any_error_is_logged_with_what_there_is_of_its_traceback(setup: Setup, name: str) -> None:
    stream, value = setup(), ODD_VALUES[name]()

    def fail() -> None:
        raise value if isinstance(value, BaseException) else ValueError(value)

    try:
        fail()
    except (ValueError, OddError):
        structlog.get_logger().exception("failed")

    (event,) = lines(stream)
    assert event["event"] == "failed"
    assert 0 < len(event["exception"]) < 20_000


def test_what_was_cut_is_said(setup: Setup) -> None:
    stream = setup()
    nested: Any = "end"
    for _ in range(20):
        nested = {"in": nested}

    structlog.get_logger().info("cut", text="a" * 100_000 + "z", many=list(range(1_000)), nested=nested)

    (event,) = lines(stream)
    assert event["text"].startswith("aaa")
    assert event["text"].endswith("aaz")
    assert "… 83,617 characters left out …" in event["text"]
    assert event["many"][-1] == "… 800 more"
    assert "… a dict nested deeper than 8 levels" in json.dumps(event["nested"], ensure_ascii=False)


def test_the_name_and_the_traceback_of_an_event_are_kept_whatever_else_it_has(setup: Setup) -> None:
    stream = setup()

    try:
        int("the reason")
    except ValueError:
        structlog.get_logger().exception("full", **{f"key{nth}": "x" * 10_000 for nth in range(500)})

    (event,) = lines(stream)
    assert (event["event"], event["level"]) == ("full", "error")
    assert event["exception"].endswith("'the reason'")
    assert event["…"].endswith(" more")


def test_a_short_event_hides_secrets_in_names_and_values_and_writes_no_number_that_json_lacks(setup: Setup) -> None:
    stream = setup(dsn="postgresql://u:hidden_password@h/d")

    structlog.get_logger().info("a.b", hidden_password=1)
    structlog.get_logger().info("a.b", name="hidden_password", url="pq://u:other@h", rate=float("inf"))

    first, second = lines(stream)
    assert first["****"] == 1
    assert (second["name"], second["url"], second["rate"]) == ("****", "pq://u:****@h", "inf")


def test_a_secret_at_the_seam_of_a_long_text_is_hidden(setup: Setup) -> None:
    stream = setup(dsn="postgresql://u:hidden-password@h/d")
    for size in (log_event.MAX_TEXT, log_event.MAX_SEARCHED):
        for at in (size * 3 // 4, size // 4):
            for shift in range(-20, 20, 3):
                text = "x" * (at + shift) + "hidden-password" + "y" * size
                structlog.get_logger().info(
                    "seam", ahead=text, behind=text[::-1].replace("drowssap-neddih", "hidden-password")
                )

    assert not any(part in stream.getvalue() for part in ("hidden-passwo", "den-password"))


def test_arguments_that_do_not_fit_cost_neither_the_event_nor_the_caller(setup: Setup) -> None:
    stream = setup()

    structlog.get_logger().info("%d things", "many")
    logging.getLogger("library").info("%d things", "many")

    assert ["%d things" in each["event"] for each in lines(stream)] == [True, True]


def test_a_line_near_the_end_of_the_stack_raises_nothing(setup: Setup) -> None:
    setup()

    def deeper(left: int) -> None:
        structlog.get_logger().info("deep")
        if left:
            deeper(left - 1)

    def to_the_end() -> int:
        try:
            return to_the_end() + 1
        except RecursionError:
            return 0

    deeper(to_the_end() - 40)


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
