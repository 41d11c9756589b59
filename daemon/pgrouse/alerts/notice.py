"""One message to a sink: its content, as text for people and as JSON for programs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote
from uuid import uuid4

from pgrouse.alerts import runbooks
from pgrouse.client.calls.monitoring.stats import COUNT_BOUND
from pgrouse.config import alert_template as template
from pgrouse.values import error_line
from pgrouse.values.format import show_estimate

DEAD = "dead_message"
# How many groups a text lists; programs get up to a hundred.
MAX_LISTED = 10
ERROR_CHARACTERS = 500
# Controls (lines stay), what is invisible or turns the direction of text, halves of surrogate pairs.
_UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
# Mentions that notify everybody in a chat: an error text must not trigger them.
_MENTION = re.compile(r"@(?=everyone|here|channel|all\b)|<(?=[!@#])", re.IGNORECASE)
RESULTS = {
    "failed": "failed",
    "rejected": "were rejected",
    "lock_expired": "lost their lock",
    "expired": "expired unread",
}
# What every front end calls the kinds of conditions.
KINDS = {
    "workers_down": "workers down",
    "breaker": "breaker open",
    "listener_degraded": "polling",
    "cron_late": "pg_cron late",
    "backlog": "backlog",
    "no_worker": "no worker",
    "snapshot_held": "old transaction",
    "dead_rate": "many dead",
    "alerts_undelivered": "alerts not sent",
}


# The pages that show them; of the others, the topic, or the doctor.
PAGES = {
    "workers_down": "/workers",
    "no_worker": "/messages?topic={topic}&state=ready",
    "backlog": "/messages?topic={topic}&state=ready",
    "dead_rate": "/dead?topic={topic}",
    "alerts_undelivered": "/alerts",
}


@dataclass(frozen=True)
class QueueInfo:
    """Which queue a message is about, and where its dashboard is.

    Attributes:
        environment: its name in the configuration: production, staging.
        database: the name of its database.
        dashboard: the address of its dashboard, without a slash at the end.
    """

    environment: str | None = None
    database: str | None = None
    dashboard: str | None = None

    def link(self, path: str) -> str | None:
        """Return the address of a page of the dashboard, if it has an address."""
        return f"{self.dashboard}{path}" if self.dashboard else None

    def runbook(self, kind: str) -> str | None:
        """Return the address of the runbook for a kind of alert, if the dashboard has an address."""
        path = runbooks.path(kind)
        return None if path is None else self.link(path)


UNKNOWN_QUEUE = QueueInfo()


@dataclass(frozen=True)
class Notice:
    """A message as its sink gets it; repeated, it is the same.

    Attributes:
        id: the same for every attempt to send it: receivers deduplicate by it.
        sequence: rises from message to message of a sink, with gaps.
        attempt: how often it was sent, including this time.
        content: what messages.claim_delivery returned: status, count, group_count, groups, and replay_of or test.
        title_template: None: the environment and the summary.
        queue: which queue it is about.
    """

    id: str
    sink: str
    sequence: int
    attempt: int
    created_at: datetime
    content: Mapping[str, Any]
    title_template: str | None = None
    body_template: str | None = None
    queue: QueueInfo = UNKNOWN_QUEUE
    _values: dict[str, str] = field(default_factory=dict, init=False, repr=False)

    @property
    def groups(self) -> list[Mapping[str, Any]]:
        """The groups that it reports, the largest first; at most a hundred."""
        return list(self.content["groups"])

    @property
    def resolved(self) -> bool:
        """Whether all its groups are resolved."""
        return bool(self.content["status"] == "resolved")

    @property
    def title(self) -> str:
        """One line."""
        marks = "[test] " * bool(self.content.get("test")) + "[again] " * bool(self.content.get("replay_of"))
        if self.title_template is not None:
            return one_line(marks + template.fill(self.title_template, self.values), 200)
        environment = f"[{self.queue.environment}] " if self.queue.environment else ""
        return one_line(marks + environment + self.values["summary"], 200)

    @property
    def body(self) -> str:
        """The text, without a line feed at its end."""
        if self.body_template is not None:
            return template.fill(self.body_template, self.values).strip()
        return "\n".join(self._lines()).strip()

    @property
    def severity(self) -> str:
        """The highest severity of its groups."""
        return "page" if any(group["severity"] == "page" for group in self.groups) else "ticket"

    @property
    def link(self) -> str | None:
        """The page of the dashboard that shows its groups."""
        return self.queue.link(dashboard_path(self.groups[0]) if self.content["group_count"] == 1 else "/")

    @property
    def runbook(self) -> str | None:
        """The runbook of its groups, if they have one in common."""
        kinds = {group["kind"] for group in self.groups}
        return self.queue.runbook(kinds.pop()) if len(kinds) == 1 else None

    @property
    def values(self) -> Mapping[str, str]:
        """The values for templates; those of the largest group if there are several."""
        if not self._values:
            first = self.groups[0]
            known = {name: sanitize(first.get(name)) for name in template.NAMES}
            times = {name: format_time(first[name]) for name in ("first_at", "last_at")}
            self._values.update(
                {
                    **known,
                    **times,
                    "error": excerpt(first["error"]),
                    "fix": sanitize(advice(first)),
                    "summary": self._summary(),
                    "severity": self.severity,
                    "environment": self.queue.environment or "",
                    "database": self.queue.database or "",
                    "link": self.link or "",
                    "runbook": self.runbook or "",
                    "status": str(self.content["status"]),
                    "count": str(self.content["count"]),
                    "group_count": str(self.content["group_count"]),
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
            "environment": self.queue.environment,
            "database": self.queue.database,
            "link": self.link,
            "runbook": self.runbook,
            **self.content,
        }

    def _summary(self) -> str:
        if self.content["group_count"] == 1:
            return summary(self.groups[0])
        return f"{self._how_many()}, first: {summary(self.groups[0])}"

    def _how_many(self) -> str:
        """Say how many problems there are, and how many are over; those that are not listed count as problems."""
        over = sum(group["status"] != "firing" for group in self.groups)
        problems = self.content["group_count"] - over
        counted = [f"{problems:,} problem{'s' * (problems != 1)}"] if problems else []
        return " and ".join([*counted, *([f"{over:,} resolved"] if over else [])])

    def _lines(self) -> list[str]:
        if self.content["group_count"] == 1:
            group = self.groups[0]
            return [*_facts({**_group_facts(group), **self._queue_facts()}), "", excerpt(group["error"])]
        listed = [line for group in self.groups[:MAX_LISTED] for line in _listed(group)]
        more = self.content["group_count"] - MAX_LISTED
        return [*listed, *([f"- and {more:,} more groups"] if more > 0 else []), "", *_facts(self._queue_facts())]

    def _queue_facts(self) -> dict[str, Any]:
        return {
            "environment": self.queue.environment,
            "database": self.queue.database,
            "link": self.link,
            "runbook": self.runbook,
        }


def make_test_notice(sink: str, title: str | None, body: str | None, queue: QueueInfo = UNKNOWN_QUEUE) -> Notice:
    """Return the message that `pgrouse alert test` sends: marked as a test, about no real event."""
    now = datetime.now(UTC)
    group = {
        "group": "0" * 32,
        "kind": DEAD,
        "severity": "ticket",
        "topic": "pgrouse.test",
        "result": "failed",
        "fingerprint": "0" * 16,
        "status": "firing",
        "count": 1,
        "total": 1,
        "first_at": now.isoformat(),
        "last_at": now.isoformat(),
        "since": now.isoformat(),
        "messages": None,
        "first_message_id": None,
        "last_message_id": None,
        "error": "this is a test: nothing happened",
        "errors": [],
        "fix": None,
        "nth": 1,
        "escalated": False,
    }
    content = {"status": "firing", "count": 1, "group_count": 1, "groups": [group], "test": True}
    return Notice(str(uuid4()), sink, 0, 1, now, content, title, body, queue)


def summary(group: Mapping[str, Any]) -> str:
    """Describe one group in one line."""
    return _dead_summary(group) if group["kind"] == DEAD else _condition_summary(group)


def _condition_summary(group: Mapping[str, Any]) -> str:
    """Describe a condition: its kind, its topic, and what is wrong."""
    kind, topic = KINDS.get(group["kind"], group["kind"]), group["topic"] or ""
    if group["status"] != "firing":
        return one_line("resolved: " + ": ".join(filter(None, [kind, topic])))
    text = one_line(sanitize(error_line.last_line(group["error"] or "")), 150)
    # The number comes early: a title is cut at its end.
    said = [_still(group) + kind + _counted(group), "" if topic in text else topic, text]
    return one_line(": ".join(filter(None, said)), 300)


def _still(group: Mapping[str, Any]) -> str:
    """Begin the summary of a repetition: that it goes on, and since when."""
    return f"still, since {format_time(group['since'])}: " if group["nth"] > 1 else ""


def _counted(group: Mapping[str, Any]) -> str:
    """Say how many messages a condition is about now, if it is about messages."""
    count = group["messages"]
    if not count:
        return ""
    # From there on, ready messages are estimated; dead ones are counted.
    is_estimate = group["kind"] != "dead_rate" and count >= COUNT_BOUND
    return f" ({show_estimate(count, is_estimate=is_estimate)} message{'s' * (count != 1)} now)"


def _dead_summary(group: Mapping[str, Any]) -> str:
    """Describe dead messages: how many, how they ended, in which topic, and the line that names the error."""
    ended = RESULTS.get(group["result"] or "", "died")
    many = group["count"] != 1
    verb = ended if many else ended.replace("were", "was").replace("their", "its")
    in_topic = f" in {group['topic']}" if group["topic"] else ""
    again = f" ({group['total']:,} since it began)" if group["total"] != group["count"] else ""
    text = f"{group['count']:,} message{'s' * many} {verb}{in_topic}{again}"
    error = one_line(sanitize(error_line.last_line(group["error"] or "")), 100)
    return one_line(f"{text}: {error}" if error else text, 300)


def advice(group: Mapping[str, Any]) -> str | None:
    """Return what to do about a group; None if it is over."""
    if group["status"] != "firing":
        return None
    if group["fix"] or group["kind"] != DEAD:
        return str(group["fix"] or "") or None
    options = [("--topic", group["topic"]), ("--fingerprint", group["fingerprint"])]
    chosen = "".join(f" {option} {value}" for option, value in options if value)
    topic = f" --topic {group['topic']}" if group["topic"] else ""
    return f"see why: `pgrouse dead group{topic}`; fix the cause, then `pgrouse redrive{chosen}`"


def dashboard_path(group: Mapping[str, Any]) -> str:
    """Return the page of the dashboard that shows a group."""
    if group["kind"] == DEAD:
        single = group["total"] == 1 and group["first_message_id"] is not None
        if single:
            return f"/messages/{group['first_message_id']}"
        return f"/dead?topic={quote(group['topic'], safe='')}" if group["topic"] else "/dead"
    page = PAGES.get(group["kind"], "/topics/{topic}" if group["topic"] else "/doctor")
    return page.format(topic=quote(group["topic"] or "", safe=""))


def format_time(at: str) -> str:
    """Format a time from JSON for texts about alerts."""
    return datetime.fromisoformat(at).astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def excerpt(error: str | None) -> str:
    """Return the end of an error, where a traceback has the exception."""
    return _neutralize(error_line.cut(error or "", ERROR_CHARACTERS))


def _group_facts(group: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "topic": group["topic"],
        "severity": group["severity"] if group["status"] == "firing" else None,
        "messages": _id_range(group["first_message_id"], group["last_message_id"]),
        "first": format_time(group["first_at"] if group["kind"] == DEAD else group["since"]),
        "last": format_time(group["last_at"]) if group["last_at"] != group["first_at"] else None,
        "fingerprint": group["fingerprint"],
        "errors": _errors([each for each in group["errors"] if not each["is_new"]]),
        "new errors": _errors([each for each in group["errors"] if each["is_new"]]),
        "to do": advice(group),
        "escalated": "yes" if group["escalated"] else None,
    }


def _errors(errors: Sequence[Mapping[str, Any]]) -> str:
    """Name the errors of the dead messages that a condition is about."""
    named = [(one_line(error_line.last_line(each["error"] or "no error"), 100), each["count"]) for each in errors]
    return "; ".join(f"{error} ({count:,})" for error, count in named)


def _listed(group: Mapping[str, Any]) -> list[str]:
    """Return the lines of a group in the text about several."""
    return [f"- {summary(group)}", *(f"  {line}" for line in _facts({"to do": advice(group)}))]


def _facts(facts: Mapping[str, Any]) -> list[str]:
    return [f"{name}: {one_line(sanitize(value))}" for name, value in facts.items() if value]


def _id_range(first: int | None, last: int | None) -> str | None:
    if first is None:
        return None
    return str(first) if first == last else f"{first} to {last}"


def sanitize(value: Any) -> str:
    """Return a value from a message as plain text: no control characters, no chat mentions; cut to a limit."""
    text = _neutralize("" if value is None else str(value)[: 4 * ERROR_CHARACTERS])
    return text if len(text) <= ERROR_CHARACTERS else text[: ERROR_CHARACTERS - 1] + "…"


def _neutralize(text: str) -> str:
    text = _UNSAFE.sub(lambda found: " " if found[0] in "\t\r" else "\ufffd", text)
    return _MENTION.sub(lambda found: found[0] + "\u2060", text)


def one_line(text: str, characters: int = ERROR_CHARACTERS) -> str:
    """Return the text on one line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"
