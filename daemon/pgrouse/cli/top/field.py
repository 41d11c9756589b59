"""How the lines of the forms of `pgrouse top` are read. Each raises ValueError with what is expected."""

from __future__ import annotations

from datetime import datetime, timedelta

from pgrouse.client.redrive import MAX_RATE, MIN_RATE
from pgrouse.config.duration import parse


def read_text(text: str) -> str:
    """Read a text that is needed."""
    if not text:
        raise ValueError("this line is needed")
    return text


def read_id(text: str) -> int:
    """Read the id of a message."""
    if not text.isascii() or not text.isdecimal():
        raise ValueError(f"expected the id of a message, found {text!r}")
    return int(text)


def read_end(text: str) -> timedelta | datetime | None:
    """Read a duration like 30m, or a time with its zone; nothing = no end."""
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return parse(text)
    if moment.tzinfo is None:
        raise ValueError(f'expected a time with its zone like "2027-01-31T08:00:00+01:00", found {text!r}')
    return moment


def read_rate(text: str) -> float | None:
    """Read how many a second; nothing = all at once."""
    rate = float(text) if text else None
    if rate is not None and not MIN_RATE <= rate <= MAX_RATE:
        raise ValueError(f"expected a number from {MIN_RATE} to {MAX_RATE:,}")
    return rate


def read_delay(text: str) -> timedelta:
    """Read a duration; nothing = none."""
    return parse(text or 0)


def read_yes(text: str) -> bool:
    """Read yes or no; nothing = no."""
    if text not in ("", "no", "yes"):
        raise ValueError("expected yes or no")
    return text == "yes"
