"""Templates of titles and texts: placeholders like `{{topic}}`, and nothing else.

Templates deliberately have no attributes and no loops. The values come from errors of handlers, so anyone may write
them: a value is never read as a template. Use the sinks `command` and `webhook` if you need logic.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

PLACEHOLDER = re.compile(r"\{\{\s*+([A-Za-z_]*)\s*+\}\}")
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
    "fix",
    "severity",
    "environment",
    "database",
    "link",
    "runbook",
    "fingerprint",
    "first_at",
    "last_at",
    "first_message_id",
    "last_message_id",
    "escalated",
    "sink",
    "id",
)


def check_placeholders(text: str) -> str:
    """Return the template unchanged.

    Raises:
        ValueError: it has a placeholder with an unknown name.
    """
    for name in PLACEHOLDER.findall(text):
        if name not in NAMES:
            near = difflib.get_close_matches(name, NAMES, n=1)
            fix = f"did you mean {{{{{near[0]}}}}}?" if near else f"there are: {', '.join(NAMES)}"
            raise ValueError(f"{{{{{name}}}}} is not a placeholder; {fix}")
    return text


def fill(text: str, values: Mapping[str, str]) -> str:
    """Fill in the values in one pass: a value that looks like a placeholder stays as it is."""
    return PLACEHOLDER.sub(lambda found: values[found[1]], text)
