"""What messages are looked for.

The filters of a list are here as they stand in its address, and as `messages.find_messages` takes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from pgrouse.client.call import Call, run_async
from pgrouse.client.calls.monitoring.search import FoundPage, find_messages
from pgrouse.client.message_state import DEAD, LIVE, RESULTS, WAITING
from pgrouse.client.queries.message import previews
from pgrouse.config import duration
from pgrouse.errors import InvalidMessage
from pgrouse.values import jsonb
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row
from pgrouse.web.access.redaction import check_content_filters
from pgrouse.web.http.problem import Problem

# Words that stand for several states.
GROUPS = {"scheduled": WAITING[1:], "live": LIVE, "dead": DEAD, "ended": RESULTS}
# What a list may be sorted by instead; only its first messages are sorted, up to this number.
SORTS: dict[str, Callable[[Row], Any]] = {
    "oldest": lambda row: row["created_at"],
    "attempts": lambda row: -row["attempts"],
    "topic": lambda row: row["topic"],
    "worker": lambda row: (row["worker"] is None, row["worker"] or ""),
}
MAX_SORTED = 1000
# How many rows the page of a list may have.
SIZES = ("25", "50", "100", "200")
DEFAULT_SIZE = "50"
MAX_FILTER_CHARS = 1000  # characters of one filter
MAX_ID_DIGITS = 20  # one digit more than any id has
MAX_ATTEMPTS_DIGITS = 9  # what an integer of the database takes


@dataclass(frozen=True)
class Search:
    """The filters of a list, as the user typed them; empty = any.

    Attributes:
        topic, channel, key, fingerprint: exactly this one.
        state: a state, a result, or scheduled, live, dead, ended.
        error: a text that the last error has; A to Z in any case.
        payload: `customer.id = 42`, or a jsonpath.
        header: `tenant = acme`.
        worker: runs it, or ended it.
        attempts: it has had at least this many.
        batch: it counts in the batch with this id.
        since, until: how long ago, like 30m or 7d, or a time.
        sort: one of `SORTS`.
        size: how many rows a page has; it narrows nothing, nor does sort.
    """

    topic: str = ""
    state: str = ""
    channel: str = ""
    key: str = ""
    error: str = ""
    fingerprint: str = ""
    payload: str = ""
    header: str = ""
    worker: str = ""
    attempts: str = ""
    batch: str = ""
    since: str = ""
    until: str = ""
    sort: str = ""
    size: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Search:
        """Read the filters of an address or a form.

        Raises:
            Problem: 422, one is too long.
        """
        given = {each.name: str(values.get(each.name) or "") for each in fields(cls)}
        for name, value in given.items():
            if len(value) > MAX_FILTER_CHARS:
                raise Problem(
                    422, f"{name} has {len(value):,} characters, {MAX_FILTER_CHARS:,} is the most", "invalid_filter"
                )
        # Blanks may belong to a key or an error; around the others they were typed by mistake.
        exact = ("key", "channel", "error")
        return cls(**{name: value if name in exact else value.strip() for name, value in given.items()})

    def filters(self) -> dict[str, str]:
        """Return the filters that narrow."""
        return {name: value for name, value in asdict(self).items() if value and name not in ("sort", "size")}

    def query(self, **more: Any) -> str:
        """Return the part of an address behind the `?`; a list repeats its name, what is empty is left out."""
        return urlencode(
            {
                **self.filters(),
                **{name: value for name, value in {"sort": self.sort, "size": self.size, **more}.items() if value},
            },
            doseq=True,
        )

    @property
    def states(self) -> list[str] | None:
        """The states that are wanted; None = any.

        Raises:
            Problem: 422, there is no such state.
        """
        if not self.state:
            return None
        if self.state in GROUPS:
            return list(GROUPS[self.state])
        if self.state not in (*LIVE, *RESULTS):
            known = ", ".join((*LIVE, *RESULTS, *GROUPS))
            raise Problem(422, f"there is no state {self.state!r}: use one of {known}", "invalid_filter")
        return [self.state]

    def arguments(self, caller: Caller) -> dict[str, Any]:
        """Return the arguments of the SQL function; the caller's patterns of topics also apply.

        Raises:
            Problem: 422, a filter cannot be read.
        """
        check_content_filters(caller, self.payload, self.header)
        path, value = _payload_filter(self.payload)
        return {
            "topic": self.topic or None,
            "states": self.states,
            "channel": self.channel or None,
            "key": self.key or None,
            "error": self.error or None,
            "fingerprint": self.fingerprint or None,
            "path": path,
            "value": value,
            "headers": header_filter(self.header),
            "worker": self.worker or None,
            "attempts": _attempts_filter(self.attempts),
            "batch_id": parse_id(self.batch, "batch") if self.batch else None,
            "since": parse_time(self.since, "since"),
            "until": parse_time(self.until, "until"),
            "topics": caller.limited_to,
            "limit": 50,
            "after": None,
            "preview": 0,
        }


@dataclass(frozen=True)
class SearchPage:
    """One page of a search.

    Attributes:
        rows: the messages.
        cursor: where the next page begins; None = that was all.
        scanned: how many messages were read.
        reached: the time that the last of those is from.
        sorted_count: how many were sorted, of which the rows are the first; 0 = the page is in the order of the search.
        sorted_all: whether those are all that match.
    """

    rows: list[Row]
    cursor: Any
    scanned: int
    reached: datetime | None
    sorted_count: int = 0
    sorted_all: bool = False

    @property
    def ids(self) -> list[int]:
        """The ids of the messages."""
        return [row["id"] for row in self.rows]


async def find(conn: Connection, arguments: Mapping[str, Any], **more: Any) -> SearchPage:
    """Run a search. more: arguments that are set otherwise."""
    page = await run_async(conn, search_call({**arguments, **more}))
    place = None if page.place is None else json.loads(page.place)
    return SearchPage([asdict(each) for each in page.messages], place, page.examined, page.reached)


async def find_sorted(
    conn: Connection, arguments: Mapping[str, Any], sort: str, limit: int, preview: int
) -> SearchPage:
    """Sort what a search finds first, and return the beginning of that.

    Raises:
        Problem: 422, there is no such order.
    """
    if sort not in SORTS:
        raise Problem(422, f"there is no order {sort[:100]!r}: use one of {', '.join(SORTS)}", "invalid_filter")
    # Payloads are read of those that are shown, and not of all that are sorted.
    found = await find(conn, arguments, limit=MAX_SORTED, preview=0)
    if not found.rows:
        return found  # the search goes on from there, in its own order
    rows = sorted(found.rows, key=SORTS[sort])[:limit]
    beginnings = await run_async(conn, previews(places_of(rows), preview))
    shown = [row | {"preview": beginnings.get(row["id"])} for row in rows]
    return replace(found, rows=shown, sorted_count=len(found.rows), sorted_all=found.cursor is None, cursor=None)


def places_of(rows: Sequence[Row]) -> list[tuple[int, datetime | None]]:
    """Return where listed messages are: their ids, and when they ended."""
    return [(row["id"], row["archived_at"]) for row in rows]


def search_call(arguments: Mapping[str, Any]) -> Call[FoundPage]:
    """Return the call of a search."""
    after = arguments["after"]
    return find_messages(**{**arguments, "after": None if after is None else json.dumps(after)})


def parse_size(text: str) -> int:
    """Read how many rows a page has.

    Raises:
        Problem: 422, it is no size that can be chosen.
    """
    if text and text not in SIZES:
        raise Problem(422, f"size is {text[:50]!r}: use one of {', '.join(SIZES)}", "invalid_filter")
    return int(text or DEFAULT_SIZE)


def parse_cursor(text: str) -> Any:
    """Read the place of a page from an address.

    Raises:
        Problem: 422, it is none.
    """
    if not text:
        return None
    try:
        return json.loads(text[:MAX_FILTER_CHARS])
    except (ValueError, RecursionError):
        raise Problem(422, "after is not a position in a list: begin with its first page", "invalid_cursor") from None


def parse_id(text: str, of: str = "message") -> int:
    """Read the id of a message, or of something else.

    Raises:
        Problem: 422, it is none.
    """
    digits = text.strip()
    # Python converts no number of thousands of digits.
    number = digits.lstrip("0")[:MAX_ID_DIGITS] or "0"
    if not digits.isascii() or not digits.isdecimal() or int(number) >= 2**63:
        raise Problem(422, f"{text[:50]!r} is no id of a {of}: it is a number", "invalid_id")
    return int(number)


def parse_time(text: str, name: str) -> datetime | None:
    """Read a time: how long ago, or a date with or without its time (UTC unless it says otherwise).

    Raises:
        Problem: 422, it is neither.
    """
    if not text:
        return None
    try:
        return datetime.now(UTC) - duration.parse(text)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        expected = 'use how long ago, like "30m" or "7d", or a time like "2026-02-01 12:00"'
        raise Problem(422, f"{name} is {text[:100]!r}: {expected}", "invalid_filter") from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


# Characters that only a jsonpath has before its first `=`; names of members and indexes of arrays do not have them.
_JSONPATH_ONLY = frozenset("?()<>!&|")
_STEP = re.compile(r"\[(?:\*|\d+)\]|[^.\[\]]+")


def _payload_filter(text: str) -> tuple[str | None, str | None]:
    """Return the jsonpath and the value that a filter by payload stands for."""
    if not text:
        return None, None
    # `name = value` or `name == value`.
    path, _, value = text.partition("=")
    value = value.removeprefix("=").strip()
    if not value or _JSONPATH_ONLY.intersection(path):
        return (text if text.startswith(("$", "strict ", "lax ")) else _path(text)), None
    return _path(path), _value(value)


def header_filter(text: str) -> str | None:
    """Return the JSON that the headers must contain, from a text like `tenant = acme`.

    Raises:
        Problem: 422, it is none.
    """
    if not text:
        return None
    name, equals, value = (part.strip() for part in text.partition("="))
    if not equals or not name:
        raise Problem(422, f'header is {text[:100]!r}: use a name and a value, like "tenant = acme"', "invalid_filter")
    return f"{{{json.dumps(name)}: {_value(value)}}}"


def _attempts_filter(text: str) -> int | None:
    if not text:
        return None
    if not text.isascii() or not text.isdecimal() or len(text) > MAX_ATTEMPTS_DIGITS:
        raise Problem(422, f"attempts is {text[:100]!r}: use a number, the least that they have had", "invalid_filter")
    return int(text)


def _path(text: str) -> str:
    steps = _STEP.findall(text.strip().removeprefix("$").removeprefix("."))
    return "$" + "".join(step if step.startswith("[") else "." + json.dumps(step.strip('"')) for step in steps)


def _value(text: str) -> str:
    """Return a value as JSON, every digit of it; what is not JSON is a string."""
    try:
        read = jsonb.decode(text, "payload")
    except InvalidMessage:
        return json.dumps(text)
    if isinstance(read, dict | list):
        raise Problem(422, "only a string, a number, true, false or null can be compared", "invalid_filter")
    return text
