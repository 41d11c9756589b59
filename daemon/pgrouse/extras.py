"""What is installed beside pgrouse: some packages make it faster or nicer, and it works without them."""

from __future__ import annotations

from importlib.util import find_spec


def has_rich() -> bool:
    """Return whether terminals can have tables that fit, and bars: the extra `rich`."""
    return find_spec("rich") is not None
