"""Contents of messages as viewers see them: `web.redact` names a function of the application that decides.

It is asked for everything that is published, kept or returned by handlers. Whatever goes wrong, nothing is shown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pgrouse.crypto import envelope
from pgrouse.errors import InvalidMessage
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.values import jsonb
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.http.problem import Problem

Row = dict[str, Any]

HIDDEN = '"hidden: see web.redact"'
# The columns of a message with contents, and what each is for the function.
PARTS = {
    "payload": "payload",
    "headers": "headers",
    "output": "output",
    "state_kept": "checkpoint",
    "progress": "progress",
}
# Parts of which an encrypted one is an envelope, and shown as such.
ENVELOPED = ("output", "checkpoint", "step")
# What a list shows instead of a large payload, or of bytes; no JSON looks like it.
SIZE = re.compile(r"\d+ bytes|JSON of about \d+ kB")


@dataclass(frozen=True, slots=True)
class Content:
    """A content of a message, which someone is to be shown.

    Attributes:
        topic: the topic of the message.
        part: payload, headers, output, checkpoint, progress or step; body: bytes, or the beginning of them; or log: the
            log lines of an attempt.
        value: the content: decoded JSON, bytes, or text.
        roles: the roles of the viewer.
    """

    topic: str
    part: str
    value: Any
    roles: frozenset[Role]


class Redactor:
    """Calls the function that `web.redact` names.

    Args:
        function: returns what is shown instead of a content.
    """

    def __init__(self, function: Callable[[Content], Any]) -> None:
        self._function = function
        self._failed: set[tuple[str, str, str]] = set()

    def redact(self, content: Content) -> Any:
        """Return what is shown; None if the function fails.

        The error is logged once for each topic and part, and without its text, which may repeat the content.
        """
        try:
            return self._function(content)
        except Exception as error:  # noqa: BLE001 - the application's code
            failure = (content.topic, content.part, type(error).__name__)
            if failure not in self._failed and len(self._failed) < 1000:  # noqa: PLR2004
                self._failed.add(failure)
                log.warning(events.WEB_REDACT_FAILED, topic=content.topic, part=content.part, reason=failure[2])
            return None


def shown_json(caller: Caller, topic: str, part: str, text: str | None) -> str | None:
    """Return the JSON text that the caller sees instead of a JSON text."""
    if caller.redactor is None or text is None or (part in ENVELOPED and envelope.describe_json(text) is not None):
        return text
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # only its beginning was read
        return HIDDEN
    shown = caller.redactor.redact(Content(topic, part, value, caller.roles))
    is_hidden = (shown is None and value is not None) or (part == "headers" and not isinstance(shown, dict | None))
    try:
        return HIDDEN if is_hidden else jsonb.encode(shown, part)
    except InvalidMessage:
        return HIDDEN


def shown_body(caller: Caller, topic: str, body: bytes | memoryview | None) -> bytes | None:
    """Return the bytes that the caller sees instead of a body; an encrypted one stays as it is."""
    given = None if body is None else bytes(body)
    if caller.redactor is None or given is None or envelope.read_header(given) is not None:
        return given
    shown = caller.redactor.redact(Content(topic, "body", given, caller.roles))
    return shown if isinstance(shown, bytes) else b"hidden"


def shown_log(caller: Caller, topic: str, lines: str) -> str:
    """Return the text that the caller sees instead of the log lines of an attempt."""
    if caller.redactor is None:
        return lines
    shown = caller.redactor.redact(Content(topic, "log", lines, caller.roles))
    return shown if isinstance(shown, str) else json.loads(HIDDEN)


def shown_message(caller: Caller, row: Row) -> Row:
    """Return a message whose contents are as the caller sees them.

    `is_redacted`: payload or headers differ, so that they cannot be edited.
    """
    if caller.redactor is None:
        return row | {"is_redacted": False}
    shown = {name: shown_json(caller, row["topic"], part, row[name]) for name, part in PARTS.items()}
    shown_row = row | shown | {"body": shown_body(caller, row["topic"], row["body"])}
    return shown_row | {"is_redacted": any(differs(row[name], shown_row[name]) for name in ("payload", "headers"))}


def differs(text: str | None, shown: str | None) -> bool:
    """Return whether the JSON text that is shown instead of another has another value."""
    if text is None or shown is None or HIDDEN in (text, shown):
        return text != shown
    return bool(json.loads(text) != json.loads(shown))


def shown_detail(caller: Caller, topic: str | None, detail: dict[str, Any]) -> dict[str, Any]:
    """Return the details of an entry of the audit log; those of schedules have payloads and headers."""
    changes = detail.get("changes")
    if caller.redactor is None or not isinstance(changes, dict):
        return detail

    def shown(part: str, change: Any) -> Any:
        if part not in ("payload", "headers") or not isinstance(change, dict):
            return change
        texts = {side: shown_json(caller, topic or "", part, json.dumps(value)) for side, value in change.items()}
        return {side: None if text is None else json.loads(text) for side, text in texts.items()}

    return detail | {"changes": {part: shown(part, change) for part, change in changes.items()}}


def shown_preview(caller: Caller, row: Row, chars: int) -> str | None:
    """Return the beginning of a payload as the caller sees it in a list."""
    preview: str | None = row["preview"]
    if caller.redactor is None or preview is None or SIZE.fullmatch(preview):
        return preview
    return (shown_json(caller, row["topic"], "payload", preview) or "")[:chars]


def check_content_filters(caller: Caller, *filters: str | None) -> None:
    """Check that the caller does not search by contents: what is found would tell what is hidden.

    Raises:
        Problem: 422.
    """
    if caller.redactor is not None and any(filters):
        raise Problem(422, "payload and headers cannot be filters, because web.redact hides some", "invalid_filter")
