"""The NOTIFY channels of a queue, as its SQL files name them."""

from __future__ import annotations

import re
from pathlib import Path

from pgrouse.database.install import schema


def notify_channels() -> set[str]:
    """Return the names that are given to messages.notify."""
    texts = (file.read_text() for file in Path(str(schema.sql_root())).rglob("*.sql"))
    return {name for text in texts for name in re.findall(r"messages\.notify\('(\w+)'", text)}
