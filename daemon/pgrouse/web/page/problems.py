"""Problems: what is wrong with the queue, for each page to count, and for the overview with the buttons that fix it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from pgrouse.alerts.notice import KINDS as NAMES
from pgrouse.client.calls.monitoring.alert import open_conditions
from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, Row, read_rows


@dataclass(frozen=True)
class ProblemAction:
    """A button next to a problem.

    Attributes:
        text: of the button.
        path: where it leads; {topic} stands for the topic of the problem.
        is_post: it does something, for operators only; else it is a link.
        confirm: a question to be answered first.
    """

    text: str
    path: str
    is_post: bool = False
    confirm: str = ""


@dataclass(frozen=True)
class ProblemKind:
    """What the dashboard says of a kind of condition.

    Attributes:
        advice: what to do; "" = what the condition itself says.
        actions: its buttons, the most useful first.
    """

    advice: str
    actions: tuple[ProblemAction, ...]


PAUSE = ProblemAction(
    "Pause", "/topics/{topic}/pause", is_post=True, confirm="No worker starts its messages until you resume it."
)
TOPIC = ProblemAction("Show topic", "/topics/{topic}")
WORKERS = ProblemAction("Show workers", "/workers")
DOCTOR = ProblemAction("Run the doctor", "/doctor?now=1")
# The one that stands first, and in the title and the navigation by name.
DOWN = "workers_down"
KINDS = {
    DOWN: ProblemKind("", (WORKERS, DOCTOR)),
    "no_worker": ProblemKind(
        "Start a worker with a handler for the topic, or pause it until there is one.", (PAUSE, WORKERS)
    ),
    "backlog": ProblemKind(
        "Add workers or concurrency, or see which limit holds the messages up.",
        (TOPIC, ProblemAction("Show messages", "/messages?topic={topic}&state=ready")),
    ),
    "breaker": ProblemKind(
        "Fix what the handler depends on. The breaker closes when a probe succeeds.",
        (TOPIC, ProblemAction("Show errors", "/messages?topic={topic}&state=retrying")),
    ),
    "dead_rate": ProblemKind(
        "See why they died, fix the cause, then redrive them.",
        (ProblemAction("Show and redrive", "/dead?topic={topic}"), PAUSE),
    ),
    "listener_degraded": ProblemKind(
        "Set database.listen_dsn of these workers to a direct connection. Until then they poll.", (WORKERS,)
    ),
    "cron_late": ProblemKind(
        "The doctor says what is wrong with its jobs. Until they run, run the maintenance here.",
        (ProblemAction("Run the maintenance", "/maintenance", is_post=True), DOCTOR),
    ),
    "snapshot_held": ProblemKind("", (DOCTOR,)),
    "alerts_undelivered": ProblemKind(
        "The doctor says what the sink answers. Fix it, and the alerts are sent.", (DOCTOR,)
    ),
}


async def read_problems(conn: Connection, caller: Caller) -> list[Row]:
    """Return the problems that the caller may see, as pages show them."""
    return [row | _presentation(row) for row in await read_conditions(conn, caller)]


async def read_conditions(conn: Connection, caller: Caller) -> list[Row]:
    """Return the open conditions that the caller may see, the worst first.

    They are those of a topic, and with all topics those of the fleet.
    """
    rows = await read_rows(conn, open_conditions(caller.topics))
    return [row for each in rows if (row := _visible(caller, each)) is not None]


def kind_name(kind: str) -> str:
    """Return what people call a kind of alert."""
    return NAMES.get(kind, kind.replace("_", " "))


def _visible(caller: Caller, row: Row) -> Row | None:
    """Return what the caller may see of a condition; None: nothing.

    One without a topic names workers, users and programs of the whole fleet. That the workers are down concerns
    everyone; their names do not.
    """
    if row["topic"] is not None:
        return row if caller.sees(row["topic"]) else None
    if caller.sees_all:
        return row
    return row | {"what": row["what"].partition(":")[0], "fix": ""} if row["kind"] == DOWN else None


def _presentation(row: Row) -> Row:
    kind, title = KINDS.get(row["kind"]) or ProblemKind("", (DOCTOR,)), kind_name(row["kind"])
    topic = quote(row["topic"] or "", safe="")
    actions = [(each, each.path.format(topic=topic)) for each in kind.actions]
    return {
        "title": title,
        "headline": title if row["kind"] == DOWN else "",
        "badge": "bad" if row["severity"] == "page" else "warn",
        "advice": kind.advice or row["fix"],
        "actions": actions,
    }
