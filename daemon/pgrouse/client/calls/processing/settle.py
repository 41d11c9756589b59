"""How attempts end. Each call returns the ids of the messages whose lock was lost: nothing was changed for them.

JSON is text. The arrays have an element for each message; None = none of them has that value.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pgrouse.client.call import Call, Rows, bigints, function_call, value

# Constants, and JSON as an array of text: a daemon settles thousands of messages a second by these.
COMPLETE = (
    b"SELECT messages.complete(%s::pg_catalog.int8[], %s::pg_catalog.int8[], %s::pg_catalog.text[]::pg_catalog.jsonb[])"
)
# The same as a `Statement` for every driver: its arrays are texts, which each accepts.
COMPLETE_BY_TEXTS = (
    "SELECT pg_catalog.array_to_json(messages.complete("
    "%(ids)s::pg_catalog.text::pg_catalog.int8[], %(claim_ids)s::pg_catalog.text::pg_catalog.int8[], "
    "ARRAY(SELECT o.output::pg_catalog.jsonb "
    "FROM pg_catalog.jsonb_array_elements_text(%(outputs)s::pg_catalog.text::pg_catalog.jsonb) "
    "WITH ORDINALITY AS o (output, n) ORDER BY o.n)))::pg_catalog.text"
)
REJECT = b"SELECT messages.reject(%s::pg_catalog.int8[], %s::pg_catalog.int8[], %s::pg_catalog.text[])"
FAIL = b"SELECT messages.fail(%s::pg_catalog.int8[], %s::pg_catalog.int8[], %s::pg_catalog.text[])"
RETRY = (
    b"SELECT messages.retry(%s::pg_catalog.int8[], %s::pg_catalog.int8[], %s::pg_catalog.text[], "
    b"%s::pg_catalog.interval[],"
    b" %s::pg_catalog.text[]::pg_catalog.jsonb[])"
)
RETRY_WITH_RESULT = RETRY[:-1] + b", %s)"
DEFER = (
    b"SELECT messages.defer(%s::pg_catalog.int8[], %s::pg_catalog.int8[], %s::pg_catalog.interval[], "
    b"%s::pg_catalog.timestamptz[],"
    b" %s::pg_catalog.text[]::pg_catalog.jsonb[], %s::pg_catalog.text[], %s::pg_catalog.text[])"
)
RELEASE = b"SELECT messages.release(%s::pg_catalog.int8[], %s::pg_catalog.int8[], %s::pg_catalog.bool[])"


class CompletedMessage(NamedTuple):
    """A row of `messages.completion_states`."""

    id: int
    state: str


def complete(
    ids: Sequence[int], claim_ids: Sequence[int], outputs: Sequence[str | None] | None = None
) -> Call[list[int]]:
    """Archive messages as succeeded, with their outputs."""
    return _settle(COMPLETE, ids, claim_ids, outputs)


def completion_states(ids: Sequence[int], claim_ids: Sequence[int]) -> Call[list[CompletedMessage]]:
    """Return what became of messages that a handler completed in a transaction of its own."""
    pairs = {"ids": bigints(ids), "claim_ids": bigints(claim_ids)}
    return function_call("completion_states", _states, "f.id, f.state", **pairs)


def retry(
    ids: Sequence[int],
    claim_ids: Sequence[int],
    errors: Sequence[str | None] | None,
    delays: Sequence[timedelta | None] | None = None,
    states: Sequence[str | None] | None = None,
    result: str | None = None,
) -> Call[list[int]]:
    """Retry messages while attempts are left, and archive the others."""
    if result is None:
        return _settle(RETRY, ids, claim_ids, errors, delays, states)
    call = _settle(RETRY_WITH_RESULT, ids, claim_ids, errors, delays, states)
    return Call(call.statement, [*call.values, result], call.read)


def reject(ids: Sequence[int], claim_ids: Sequence[int], errors: Sequence[str | None] | None) -> Call[list[int]]:
    """Archive messages that no attempt can handle."""
    return _settle(REJECT, ids, claim_ids, errors)


def fail(ids: Sequence[int], claim_ids: Sequence[int], errors: Sequence[str | None] | None) -> Call[list[int]]:
    """Archive messages as failed."""
    return _settle(FAIL, ids, claim_ids, errors)


def defer(
    ids: Sequence[int],
    claim_ids: Sequence[int],
    delays: Sequence[timedelta | None] | None = None,
    untils: Sequence[datetime | None] | None = None,
    states: Sequence[str | None] | None = None,
    pauses: Sequence[str | None] | None = None,
    reasons: Sequence[str | None] | None = None,
) -> Call[list[int]]:
    """Make messages available later without counting the attempt, and pause their topics or channels until then."""
    return _settle(DEFER, ids, claim_ids, delays, untils, states, pauses, reasons)


def release(ids: Sequence[int], claim_ids: Sequence[int], ran: Sequence[bool | None] | None = None) -> Call[list[int]]:
    """Release messages without counting the attempt."""
    return _settle(RELEASE, ids, claim_ids, ran)


def release_orphaned(worker: str, known: Sequence[int]) -> Call[list[int]]:
    """Release what a worker has locked without knowing it; return their ids."""
    return function_call("release_orphaned", value, worker=worker, known=bigints(known))


def _settle(
    statement: bytes, ids: Sequence[int], claim_ids: Sequence[int], *arrays: Sequence[Any] | None
) -> Call[list[int]]:
    given = (None if array is None else list(array) for array in arrays)
    return Call(statement, [bigints(ids), bigints(claim_ids), *given], value)


def _states(rows: Rows) -> list[CompletedMessage]:
    return [CompletedMessage(*row) for row in rows]
