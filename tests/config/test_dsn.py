"""Passwords are never shown."""

from __future__ import annotations

import time

import pytest

from pgrouse.config import dsn


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user:s3cret@host/db",
        "postgres://user:s3cret@host:5432,other:5432/db",
        "postgresql://user:s3c@ret@host/db",
        "postgresql://user:s3c/ret@host/db",
        "postgresql://:s3cret@host",
        "host=h password=s3cret dbname=d",
        "host=h password = 's3cret with \\' quote' dbname=d",
        "password='s3cret without an end",
        "password=s3\\ cret dbname=d",
        "PASSWORD=s3cret",
        "sslpassword=s3cret",
        "postgresql://host/db?user=u&password=s3cret&sslmode=require",
        "postgresql://user:s3cret://x:@ret@host/db",
        "a@b,postgresql://user:s3cret@host/db",
        "http://host/x,postgresql://user:s3cret@host",
        "post@gresql://user:s3cr:et@/ret@host/db",
        "sslpassword = 's3cret\\\\' user=u",
        'connection to "postgresql+psycopg://user:s3cret@host/db" failed; password=s3cret',
    ],
)
def test_a_password_is_hidden_everywhere_in_a_text(text: str) -> None:
    hidden = dsn.redact(text)

    assert "****" in hidden
    assert not any(part in hidden for part in ("s3c", "ret@", "cret", "ret/"))


@pytest.mark.parametrize(
    "text",
    [
        "postgresql://user@host:5432/db?sslmode=require",
        "host=h user=u dbname=d",
        "the password is missing",
        "https://example.com/a:b",
    ],
)
def test_a_text_without_a_password_is_unchanged(text: str) -> None:
    assert dsn.redact(text) == text


def test_a_connection_string_keeps_everything_but_its_password() -> None:
    assert dsn.redact("postgresql://user:s3cret@host/db?a=1") == "postgresql://user:****@host/db?a=1"


def test_a_known_secret_is_hidden_without_its_context() -> None:
    secrets = dsn.secrets("postgresql://user:hunter22@host/db", "host=h password=swordfish", None)

    assert dsn.redact("hunter22 and swordfish", secrets) == "**** and ****"


def test_short_passwords_and_plain_words_are_not_replaced_in_other_words() -> None:
    assert dsn.secrets("postgresql://u:abc@host/db", "postgresql://postgres:postgres@host/db") == []


@pytest.mark.parametrize(
    "piece", ["a", "x://u:", "@ x://u:", "://", "@", "password", "password ", "password=", "password='", "\\", " "]
)
@pytest.mark.parametrize("begin", ["", "password=", "x://u:p@"])
def test_a_long_line_is_searched_quickly_whatever_it_contains(begin: str, piece: str) -> None:
    """An algorithm of quadratic time would take minutes, and block all others."""
    text = begin + piece * (500_000 // len(piece))
    began = time.process_time()

    dsn.redact(text)

    assert time.process_time() - began < 2
