"""The optional packages: some make pgrouse faster or nicer, and it works without them."""

from __future__ import annotations

from importlib.util import find_spec


def has_rich() -> bool:
    """Return whether the extra `rich` is installed: tables that fit the terminal, and progress bars."""
    return find_spec("rich") is not None
