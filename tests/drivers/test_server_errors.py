"""The server's details of an error are found in the errors of every driver, and in errors that wrap them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pgrouse.errors import KeyTaken, TopicFull
from pgrouse.publishing.server_errors import ErrorTranslation

DIAG = {
    "message_detail": None,
    "context": None,
    "schema_name": "messages",
    "constraint_name": None,
    "message_hint": None,
}


class PsycopgConnection(Exception):
    def __init__(self, **diag: Any) -> None:
        self.diag = SimpleNamespace(**DIAG | diag)


class AsyncpgConnection(Exception):
    def __init__(self, **diag: Any) -> None:
        vars(self).update(
            {"hint": None, "detail": None, "context": None, "schema_name": "messages", "constraint_name": None} | diag
        )


FULL = [
    PsycopgConnection(sqlstate="PGR01", message_primary="topic t is full", message_hint="wait"),
    AsyncpgConnection(sqlstate="PGR01", message="topic t is full", hint="wait"),
    Exception({"C": "PGR01", "M": "topic t is full", "H": "wait"}),
]
TAKEN = [
    PsycopgConnection(sqlstate="23505", message_primary="duplicate", constraint_name="message_key"),
    AsyncpgConnection(sqlstate="23505", message="duplicate", constraint_name="message_key"),
    Exception({"C": "23505", "M": "duplicate", "n": "message_key", "s": "messages"}),
]


def through(error: Exception, layers: int) -> None:
    """Raise an error that has passed through this many libraries, each of which raised an error of its own."""
    if layers == 0:
        raise error
    try:
        through(error, layers - 1)
    except Exception as inner:
        raise RuntimeError(layers) from inner


@pytest.mark.parametrize("layers", [0, 1, 2])
@pytest.mark.parametrize("error", FULL, ids=["psycopg", "asyncpg", "pg8000"])
def test_a_policy_is_identified_by_its_code_however_deep_the_error_is_wrapped(error: Exception, layers: int) -> None:
    with pytest.raises(TopicFull, match=r"^topic t is full: wait$") as caught, ErrorTranslation(lambda _: None):
        through(error, layers)

    assert isinstance(caught.value.__cause__, RuntimeError if layers else type(error))


@pytest.mark.parametrize("error", TAKEN, ids=["psycopg", "asyncpg", "pg8000"])
def test_a_key_is_named_as_its_publisher_wrote_it(error: Exception) -> None:
    with pytest.raises(KeyTaken, match=r"of topic t with the key 'k' waits"), ErrorTranslation(lambda _: ("t", "k")):
        raise error
    with pytest.raises(KeyTaken, match=r"^a message with this key waits already"), ErrorTranslation(lambda _: None):
        raise error


def test_the_servers_text_about_a_key_comes_first() -> None:
    detail = "Schlüssel »(topic, key)=(copies, a, (b))« existiert bereits."
    error = PsycopgConnection(
        sqlstate="23505", message_primary="", constraint_name="message_key", message_detail=detail
    )

    with (
        pytest.raises(KeyTaken, match=r"of topic copies with the key 'a, \(b\)'"),
        ErrorTranslation(lambda _: ("t", "k")),
    ):
        raise error


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError(), PsycopgConnection(sqlstate="23505", message_primary="", constraint_name="orders_pkey")],
)
def test_any_other_error_is_passed_on(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, ErrorTranslation(lambda _: None):
        raise error

    assert caught.value is error
