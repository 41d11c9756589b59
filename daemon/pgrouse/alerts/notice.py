"""One message to a sink: what it tells, and how that reads for people and for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from pgrouse import error_line
from pgrouse.config import alert_template as template

DEAD = "dead_message"
# So many groups are listed in a text; programs get up to a hundred.
LISTED = 10
ERROR_CHARACTERS = 500
# Controls (lines stay), what is invisible or turns the direction of text, halves of surrogate pairs.
_HARMFUL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# What rings everybody in chats: a mention in an error text must not.
_MENTION = re.compile(r"@(?=everyone|here|channel|all\b)|<(?=[!@#])", re.IGNORECASE)
RESULTS = {
    "failed": "failed",
    "rejected": "were rejected",
    "lock_expired": "lost their lock",
    "expired": "expired unread",
}
KINDS = {
    "breaker": "breaker open",
    "listener_degraded": "notifications are not heard",
    "cron_late": "pg_cron is late",
    "backlog": "backlog",
    "no_worker": "no worker",
    "snapshot_held": "old snapshot held",
    "dead_rate": "many dead messages",
    "alerts_undelivered": "alerts are not delivered",
}
# As the rules of Prometheus have it. page: messages do not move, or many die. ticket: look at it today.
PAGE = frozenset({"breaker", "backlog", "no_worker", "dead_rate", "alerts_undelivered"})


@dataclass(frozen=True)
class Place:
    """Which queue a message is about, and where people look at it.

    Attributes:
        environment: what the configuration calls it: production, staging.
        database: the name of its database.
        dashboard: the address of its dashboard, without a slash at the end.
    """

    environment: str | None = None
    database: str | None = None
    dashboard: str | None = None

    def link(self, path: str) -> str | None:
        """Return the address of a page of the dashboard, if it has an address."""
        return f"{self.dashboard}{path}" if self.dashboard else None


NOWHERE = Place()


@dataclass(frozen=True)
class Notice:
    """A message as its sink gets it; repeated, it is the same.

    Attributes:
        id: stays the same however often it is sent: receivers deduplicate by it.
        sequence: rises from message to message of a sink, with gaps.
        attempt: how often it was sent, this time included.
        told: what messages.deliver_next returned: status, count, group_count, groups, and replay_of or test.
        title_template: None: the summary, and the environment before it.
        place: which queue it is about.
    """

    id: str
    sink: str
    sequence: int
    attempt: int
    created_at: datetime
    told: Mapping[str, Any]
    title_template: str | None = None
    body_template: str | None = None
    place: Place = NOWHERE
    _values: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    @property
    def groups(self) -> list[Mapping[str, Any]]:
        """What it tells of, the largest first; at most a hundred."""
        return list(self.told["groups"])

    @property
    def resolved(self) -> bool:
        """Whether all that it tells of is over."""
        return bool(self.told["status"] == "resolved")

    @property
    def title(self) -> str:
        """One line."""
        marks = "[test] " * bool(self.told.get("test")) + "[again] " * bool(self.told.get("replay_of"))
        if self.title_template is not None:
            return one_line(marks + template.fill(self.title_template, self.values), 200)
        environment = f"[{self.place.environment}] " if self.place.environment else ""
        return one_line(marks + environment + self.values["summary"], 200)

    @property
    def body(self) -> str:
        """The text, without a line feed at its end."""
        if self.body_template is not None:
            return template.fill(self.body_template, self.values).strip()
        return "\n".join(self._lines()).strip()

    @property
    def severity(self) -> str:
        """The highest of what it tells of."""
        return "page" if "page" in map(severity, self.groups) else "ticket"

    @property
    def link(self) -> str | None:
        """The page of the dashboard that shows what it tells of."""
        return self.place.link(path(self.groups[0]) if self.told["group_count"] == 1 else "/")

    @property
    def values(self) -> Mapping[str, str]:
        """What templates may name: of the largest group, where there are several."""
        if not self._values:
            first = self.groups[0]
            known = {name: harmless(first.get(name)) for name in template.NAMES}
            times = {name: moment(first[name]) for name in ("first_at", "last_at")}
            self._values.update(
                {
                    **known,
                    **times,
                    "error": excerpt(first["error"]),
                    "mend": harmless(advice(first)),
                    "summary": self._summary(),
                    "severity": self.severity,
                    "environment": self.place.environment or "",
                    "database": self.place.database or "",
                    "link": self.link or "",
                    "status": str(self.told["status"]),
                    "count": str(self.told["count"]),
                    "group_count": str(self.told["group_count"]),
                    "sink": self.sink,
                    "id": self.id,
                }
            )
        return self._values

    def payload(self) -> dict[str, Any]:
        """Return the message as programs get it (webhook and command)."""
        return {
            "id": self.id,
            "sequence": self.sequence,
            "sink": self.sink,
            "created_at": self.created_at.astimezone(UTC).isoformat(),
            "title": self.title,
            "body": self.body,
            "severity": self.severity,
            "environment": self.place.environment,
            "database": self.place.database,
            "link": self.link,
            **self.told,
        }

    def _summary(self) -> str:
        if self.told["group_count"] == 1:
            return summary(self.groups[0])
        return f"{self.told['count']:,} in {self.told['group_count']:,} groups, first: {summary(self.groups[0])}"

    def _lines(self) -> list[str]:
        if self.told["group_count"] == 1:
            group = self.groups[0]
            return [*_facts({**_portrait(group), **self._whereabouts()}), "", excerpt(group["error"])]
        listed = [f"- {summary(group)}" for group in self.groups[:LISTED]]
        more = self.told["group_count"] - len(listed)
        return [*listed, *([f"- and {more:,} more groups"] if more else []), "", *_facts(self._whereabouts())]

    def _whereabouts(self) -> dict[str, Any]:
        return {"environment": self.place.environment, "database": self.place.database, "link": self.link}


def trial_notice(sink: str, title: str | None, body: str | None, place: Place = NOWHERE) -> Notice:
    """Return the message that `pgrouse alert test` sends: marked, and of nothing that happened."""
    now = datetime.now(UTC)
    group = {
        "group": "0" * 32,
        "kind": DEAD,
        "topic": "pgrouse.test",
        "result": "failed",
        "fingerprint": "0" * 16,
        "status": "firing",
        "count": 1,
        "total": 1,
        "first_at": now.isoformat(),
        "last_at": now.isoformat(),
        "first_message_id": None,
        "last_message_id": None,
        "error": "this is a test: nothing happened",
        "mend": None,
        "nth": 1,
        "escalated": False,
    }
    told = {"status": "firing", "count": 1, "group_count": 1, "groups": [group], "test": True}
    return Notice(str(uuid4()), sink, 0, 1, now, told, title, body, place)


def summary(group: Mapping[str, Any]) -> str:
    """Say one group in one line."""
    if group["kind"] != DEAD:
        what = KINDS.get(group["kind"], group["kind"]) + (f": {group['topic']}" if group["topic"] else "")
        return one_line(("over: " if group["status"] != "firing" else "") + what)
    ended = RESULTS.get(group["result"] or "", "died")
    many = group["count"] != 1
    verb = ended if many else ended.replace("were", "was").replace("their", "its")
    place = f" in {group['topic']}" if group["topic"] else ""
    again = f" ({group['total']:,} since it began)" if group["total"] != group["count"] else ""
    text = f"{group['count']:,} message{'s' * many} {verb}{place}{again}"
    error = one_line(harmless(error_line.last_line(group["error"] or "")), 100)
    return one_line(f"{text}: {error}" if error else text, 300)


def severity(group: Mapping[str, Any]) -> str:
    """Return how urgent it is: page or ticket, as the rules of Prometheus have it."""
    return "page" if group["kind"] in PAGE else "ticket"


def advice(group: Mapping[str, Any]) -> str | None:
    """Return what to do about a group; None if it is over."""
    if group["status"] != "firing":
        return None
    if group["mend"] or group["kind"] != DEAD:
        return str(group["mend"] or "") or None
    options = [("--topic", group["topic"]), ("--fingerprint", group["fingerprint"])]
    chosen = "".join(f" {option} {value}" for option, value in options if value)
    topic = f" --topic {group['topic']}" if group["topic"] else ""
    return f"see why: `pgrouse dead group{topic}`; fix the cause, then `pgrouse redrive{chosen}`"


def path(group: Mapping[str, Any]) -> str:
    """Return the page of the dashboard that shows a group."""
    if group["kind"] == DEAD:
        single = group["total"] == 1 and group["first_message_id"] is not None
        return f"/messages/{group['first_message_id']}" if single else "/dead"
    return f"/topics/{quote(group['topic'], safe='')}" if group["topic"] else "/doctor"


def moment(at: str) -> str:
    """Write a time that JSON has, as every text about alerts writes it."""
    return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def excerpt(error: str | None) -> str:
    """Return what is shown of an error: its end, where a traceback has the exception."""
    return _disarmed(error_line.cut(error or "", ERROR_CHARACTERS))


def _portrait(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": group["topic"],
        "severity": severity(group) if group["status"] == "firing" else None,
        "messages": _span(group["first_message_id"], group["last_message_id"]),
        "first": moment(group["first_at"]),
        "last": moment(group["last_at"]) if group["last_at"] != group["first_at"] else None,
        "fingerprint": group["fingerprint"],
        "to do": advice(group),
        "escalated": "yes" if group["escalated"] else None,
    }


def _facts(facts: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {one_line(harmless(value))}" for name, value in facts.items() if value]


def _span(first: int | None, last: int | None) -> str | None:
    if first is None:
        return None
    return str(first) if first == last else f"{first} to {last}"


def harmless(value: Any) -> str:
    """Return what came from a message as text that no terminal, mail or chat takes for more than text; cut."""
    text = _disarmed("" if value is None else str(value)[: 4 * ERROR_CHARACTERS])
    return text if len(text) <= ERROR_CHARACTERS else text[: ERROR_CHARACTERS - 1] + "…"


def _disarmed(text: str) -> str:
    text = _HARMFUL.sub(lambda found: " " if found[0] in "\t\r" else "\ufffd", text)
    return _MENTION.sub(lambda found: found[0] + "\u2060", text)


def one_line(text: str, characters: int = ERROR_CHARACTERS) -> str:
    """Return the text on one line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"
