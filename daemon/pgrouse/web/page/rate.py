"""How many messages a second become available again, as the user typed it."""

from __future__ import annotations

from pgrouse.web.http.problem import Problem


def parse_rate(text: str) -> float | None:
    """Read how many a second become available; None: all at once.

    Raises:
        Problem: 422, it is no such number.
    """
    if not text.strip():
        return None
    try:
        rate = float(text)
    except ValueError:
        rate = 0.0
    if not 0.001 <= rate <= 1_000_000:  # noqa: PLR2004 - as messages.redrive; NaN fails too
        raise Problem(422, f"rate is {text[:50]!r}: use 0.001 to 1000000 messages a second", "invalid_rate")
    return rate
