"""Problems: what is wrong with the queue, for each page to count, and for the overview with the buttons that fix it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

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
        title: in two words.
        advice: what to do; "" = what the condition itself says.
        actions: its buttons, the most useful first.
    """

    title: str
    advice: str
    actions: tuple[ProblemAction, ...]


PAUSE = ProblemAction(
    "Pause", "/topics/{topic}/pause", is_post=True, confirm="No worker starts its messages until you resume it."
)
TOPIC = ProblemAction("Show topic", "/topics/{topic}")
WORKERS = ProblemAction("Show workers", "/workers")
DOCTOR = ProblemAction("Run the doctor", "/doctor?now=1")
KINDS = {
    "no_worker": ProblemKind(
        "no worker", "Start a worker with a handler for the topic, or pause it until there is one.", (PAUSE, WORKERS)
    ),
    "backlog": ProblemKind(
        "backlog",
        "Add workers or concurrency, or see which limit holds the messages up.",
        (TOPIC, ProblemAction("Show messages", "/messages?topic={topic}&state=ready")),
    ),
    "breaker": ProblemKind(
        "breaker open",
        "Fix what the handler depends on. The breaker closes when a probe succeeds.",
        (TOPIC, ProblemAction("Show errors", "/messages?topic={topic}&state=retrying")),
    ),
    "dead_rate": ProblemKind(
        "many dead",
        "See why they died, fix the cause, then redrive them.",
        (ProblemAction("Show and redrive", "/messages?topic={topic}&state=dead"), PAUSE),
    ),
    "listener_degraded": ProblemKind(
        "polling", "Set database.listen_dsn of these workers to a direct connection. Until then they poll.", (WORKERS,)
    ),
    "cron_late": ProblemKind(
        "pg_cron late",
        "The doctor says what is wrong with its jobs. Until they run, run the maintenance here.",
        (ProblemAction("Run the maintenance", "/maintenance", is_post=True), DOCTOR),
    ),
    "snapshot_held": ProblemKind("old transaction", "", (DOCTOR,)),
    "alerts_undelivered": ProblemKind(
        "alerts not sent", "The doctor says what the sink answers. Fix it, and the alerts are sent.", (DOCTOR,)
    ),
}


async def read_problems(conn: Connection, caller: Caller) -> list[Row]:
    """Return the problems that the caller may see, the worst first.

    They are those of a topic, and with all topics those of the fleet.
    """
    rows = await read_rows(conn, open_conditions())
    return [row | _presentation(row) for row in rows if _may_see(caller, row["topic"])]


def _may_see(caller: Caller, topic: str | None) -> bool:
    """Return whether the caller may see a condition.

    One without a topic names workers, users and programs of the whole fleet.
    """
    return caller.sees_all if topic is None else caller.sees(topic)


def _presentation(row: Row) -> Row:
    kind = KINDS.get(row["kind"]) or ProblemKind(row["kind"].replace("_", " "), "", (DOCTOR,))
    topic = quote(row["topic"] or "", safe="")
    actions = [(each, each.path.format(topic=topic)) for each in kind.actions]
    return {
        "title": kind.title,
        "badge": "bad" if row["level"] == "fail" else "warn",
        "advice": kind.advice or row["fix"],
        "actions": actions,
    }
