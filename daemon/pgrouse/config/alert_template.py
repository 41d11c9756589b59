"""Titles and texts with places in them: `{{topic}}`. Nothing else has a meaning.

Deliberately no more than that. What is filled in comes from errors of handlers, and so from anybody: it is never read as a template, has no
attributes to reach for, and no loop to run. Whoever wants logic has the command and the webhook.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

PLACE = re.compile(r"\{\{\s*+([A-Za-z_]*)\s*+\}\}")
NAMES = (
    "summary",
    "status",
    "kind",
    "topic",
    "result",
    "count",
    "total",
    "group_count",
    "error",
    "mend",
    "severity",
    "environment",
    "database",
    "link",
    "fingerprint",
    "first_at",
    "last_at",
    "first_message_id",
    "last_message_id",
    "escalated",
    "sink",
    "id",
)


def checked(text: str) -> str:
    """Return the template as it is.

    Raises:
        ValueError: it has a place of a name that there is not.
    """
    for name in PLACE.findall(text):
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            mend = f"did you mean {{{{{near[0]}}}}}?" if near else f"there are: {', '.join(NAMES)}"
            raise ValueError(f"{{{{{name}}}}} is no place of a template; {mend}")
    return text


def fill(text: str, values: Mapping[str, str]) -> str:
    """Put the values in, in one go: a value that looks like a place stays what it is."""
    return PLACE.sub(lambda found: values[found[1]], text)
