"""Logs attempts: failures with their tracebacks, and at `debug` every message that ended well."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from pgrouse.client.message import Message
from pgrouse.client.processing.settlement import SettleKind, Settlement
from pgrouse.logging import events
from pgrouse.logging.event_logger import log
from pgrouse.telemetry import trace_context
from pgrouse.values.error_line import error_line

FAILURE_EVENTS = {
    SettleKind.COMPLETE: events.MESSAGE_OUTPUT_DROPPED,
    SettleKind.RETRY: events.ATTEMPT_FAILED,
    SettleKind.EXPIRE: events.ATTEMPT_TIMED_OUT,
    SettleKind.REJECT: events.MESSAGE_REJECTED,
    SettleKind.FAIL: events.MESSAGE_FAILED,
}


def log_failures(settlements: list[Settlement]) -> None:
    """Log the failures and warnings of attempts.

    A failure that many messages of a batch share is logged once, with the first of them.

    Args:
        settlements: as they may be logged: encrypted, if their messages are.
    """
    failures: Counter[tuple[SettleKind, str | None]] = Counter(
        (each.kind, each.error) for each in settlements if each.error is not None
    )
    warnings = Counter(warning for each in settlements for warning in each.warnings)
    for each in settlements:
        if count := failures.pop((each.kind, each.error), 0):
            # The line that names the error, never a payload.
            reason = error_line(each.error or "")
            log.warning(FAILURE_EVENTS[each.kind], **_keys(each, reason, count), **_traceback(each))
        for warning in each.warnings:
            if count := warnings.pop(warning, 0):
                event, reason = warning
                log.error(event, **_keys(each, reason, count))


def log_ends(settlements: Iterable[Settlement], completed: Iterable[Message], took_s: float) -> None:
    """Log, at `debug`, the messages that ended well.

    Args:
        settlements: of one attempt, or of the attempts of a batch.
        completed: those that the handler completed itself.
        took_s: how long it took.
    """
    done = [each.message for each in settlements if each.kind is SettleKind.COMPLETE]
    for message in (*done, *completed):
        log.debug(events.MESSAGE_COMPLETED, **_message_keys(message), took_s=round(took_s, 3))
    for each in settlements:
        if each.kind in (SettleKind.DEFER, SettleKind.WAIT):
            log.debug(events.MESSAGE_DEFERRED, **_message_keys(each.message), took_s=round(took_s, 3))


def _message_keys(message: Message) -> dict[str, Any]:
    return {"message_id": message.id, "topic": message.topic, "attempt": message.attempt}


def _keys(settlement: Settlement, reason: str, count: int) -> dict[str, Any]:
    limit = settlement.message.max_attempts
    may_follow = settlement.kind in (SettleKind.RETRY, SettleKind.EXPIRE) and limit is not None
    keys = {
        **_message_keys(settlement.message),
        **({"max_attempts": limit} if may_follow else {}),
        "reason": reason,
    }
    return {**keys, **({"messages": count} if count > 1 else {}), **trace_context.log_keys()}


def _traceback(settlement: Settlement) -> dict[str, str]:
    """Return the traceback of an attempt that ended by an exception, under the key by which structlog knows one."""
    error = (settlement.error or "").rstrip()
    return {"exception": error} if settlement.error_type is not None and "\n" in error else {}
