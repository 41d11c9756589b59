"""Dead letters: dead messages grouped by topic, result and error; redrive or silence a group."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from typing import Annotated, Any
from urllib.parse import parse_qsl, urlencode

from fastapi import APIRouter, Form, Request
from starlette.datastructures import FormData
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.calls import dead as calls
from pgrouse.client.message_state import DEAD
from pgrouse.client.redrive import bound_of_a_topic
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import Connection, Row, read_rows, reading
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.http.problem import Problem
from pgrouse.web.page import bulk_actions, view
from pgrouse.web.page.bulk_actions import parse_rate
from pgrouse.web.page.page import render
from pgrouse.web.page.silence import add_silence, end_silence, read_silences
from pgrouse.web.page.view import View

RANGES = {"1d": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}
DEFAULT_RANGE = "7d"
MAX_LENGTH = 300
SORTS = {
    "count": lambda group: (group["redriven"] - group["count"], not group["at_least"], -group["last_seen"].timestamp()),
    "last": lambda group: -group["last_seen"].timestamp(),
    "first": lambda group: -group["first_seen"].timestamp(),
}


@dataclass(frozen=True)
class DeadFilter:
    """The choice of a viewer.

    Attributes:
        range: one of RANGES: how far back.
        topic: only this topic; "" = all.
        error: only errors that contain this text, A to Z in any case; "" = all.
        sort: one of SORTS.
    """

    range: str = DEFAULT_RANGE
    topic: str = ""
    error: str = ""
    sort: str = "count"

    @classmethod
    def parse(cls, query: str) -> DeadFilter:
        """Return what the query of an address says; what it says wrongly is left out."""
        # No text of the database has a NUL, and it takes none.
        given = {name: value[:MAX_LENGTH].replace("\0", "").strip() for name, value in parse_qsl(query)}
        return cls(
            range=given.get("of", "") if given.get("of") in RANGES else DEFAULT_RANGE,
            topic=given.get("topic", ""),
            error=given.get("error", ""),
            sort=given.get("sort", "") if given.get("sort") in SORTS else "count",
        )

    @property
    def since(self) -> timedelta:
        """How far back."""
        return RANGES[self.range]

    @property
    def is_narrowed(self) -> bool:
        """Whether groups of the time may be left out."""
        return bool(self.topic or self.error)

    @property
    def subject(self) -> str:
        """The query of an address that says the same; "" for what is shown first."""
        names = {"range": "of"}
        default = asdict(DeadFilter())
        changed = {name: value for name, value in asdict(self).items() if value != default[name]}
        return urlencode({names.get(name, name): value for name, value in changed.items()})

    def link(self, of: str) -> str:
        """Return the query of the same groups over another time."""
        return replace(self, range=of).subject or f"of={DEFAULT_RANGE}"

    def apply(self, groups: list[Row]) -> list[Row]:
        """Return the groups that fit, in order."""
        fitting = [group for group in groups if self.error.casefold() in _text(group)]
        return sorted(fitting, key=SORTS[self.sort])


def _text(group: dict[str, Any]) -> str:
    return (group["sample_error"] or "").casefold()


router = APIRouter()


BARS = 24
MAX_GROUPS = 100
# How many dead messages are looked at, and how many of a topic at least and at most: each costs some 5 µs.
LOOKED_AT = 60_000
LOOKED_AT_OF_A_TOPIC = (2_000, 30_000)
# How many of a group a preview judges one by one.
MAX_PREVIEWED = 1000
MAX_SUBJECT_CHARS = 2000


async def read_context(conn: Connection, caller: Caller, subject: str) -> dict[str, Any]:
    """Read the groups of dead messages, each with its silence."""
    chosen = DeadFilter.parse(subject)
    topics = [chosen.topic] if chosen.topic else await run_async(conn, calls.dead_topics())
    bound = bound_of_a_topic(len(topics), LOOKED_AT, *LOOKED_AT_OF_A_TOPIC)
    found = await read_rows(conn, calls.dead_groups(chosen.since, chosen.topic or None, bars=BARS, bound=bound))
    groups = chosen.apply([row for row in found if caller.sees(row["topic"]) and _is_left(row)])
    silences = {each.id: each for each in await read_silences(conn, caller)}
    for group in groups[:MAX_GROUPS]:
        group["fingerprint"] = group["error_fingerprint"]
        group["silence"] = silences.get(group["silence_id"])
    return {
        "groups": groups[:MAX_GROUPS],
        "more": len(groups) > MAX_GROUPS,
        "ranges": list(RANGES),
        "filter": chosen,
    }


def _is_left(group: Row) -> bool:
    """Return whether some of a group are dead still; of those that were not looked at it is not known."""
    return bool(group["at_least"] or group["redriven"] < group["count"])


VIEW = View("dead", read_context, parts=("groups",))


@router.get("/dead")
async def dead(request: Request, caller: Viewer) -> Response:
    """Show the groups."""
    return await view.show(request, caller, VIEW, DeadFilter.parse(request.url.query).subject)


@router.get("/dead/redrive")
async def preview(request: Request, caller: Operator) -> Response:
    """Say what would become of a group, and ask."""
    params = request.query_params
    group = _group(params)
    check_permission(caller, Role.OPERATOR, group["topic"])
    async with reading(request) as conn:
        confirmation = await bulk_actions.confirm_now(conn)
        found = await _find(conn, group, confirmation, bulk_actions.MAX_COUNT + 1, None)
        counted = _of_group(found, group)
        ids = counted[:MAX_PREVIEWED]
        outcomes = Counter(each.outcome for each in await run_async(conn, calls.preview_redrive(ids)))
    at_least, count = len(found) > bulk_actions.MAX_COUNT, min(len(counted), bulk_actions.MAX_COUNT)
    confirmation = replace(confirmation, most=count)
    return render(
        request,
        "dead/redrive.html",
        group=group,
        count=count,
        at_least=at_least,
        previewed=len(ids),
        outcomes=[{"outcome": outcome, "count": n} for outcome, n in outcomes.most_common()],
        fields={**group, **confirmation.fields, "subject": params.get("subject", "")},
        back=_list_url(params.get("subject", "")),
    )


async def _find(
    conn: Connection, group: dict[str, Any], confirmation: bulk_actions.Confirmation, limit: int, after: int | None
) -> list[calls.FoundDeadMessage]:
    """Find the messages of a group that had died when it was confirmed, the oldest first.

    If it has no fingerprint, others are found too.
    """
    call = calls.find_dead(
        group["topic"], group["result"], group["fingerprint"], until=confirmation.as_of, limit=limit, after=after
    )
    return await run_async(conn, call)


def _of_group(found: list[calls.FoundDeadMessage], group: dict[str, Any]) -> list[int]:
    """Return the ids of those that belong to the group.

    A group without a fingerprint died without an error, which nothing can ask for.
    """
    return [each.id for each in found if each.error_fingerprint == group["fingerprint"]]


@dataclass(frozen=True)
class _RedriveStep:
    """One batch of the redrive of a group, as the form of the batch before it asks for it.

    Attributes:
        group: topic, result and fingerprint.
        confirmation: what the operator confirmed.
        rate: how many messages a second become available; None: all at once.
        force: whether messages are redriven that were redriven before.
        after: the id of the last message of the batch before; None: this is the first.
        so_far: the outcomes of all batches before.
        subject: the query of the list from which the operator came.
        is_done: whether no batch follows.
    """

    group: dict[str, Any]
    confirmation: bulk_actions.Confirmation
    rate: float | None
    force: bool
    after: int | None
    so_far: Counter[str]
    subject: str
    is_done: bool = False

    @classmethod
    def of(cls, form: FormData) -> _RedriveStep:
        """Read the form.

        Raises:
            Problem: 422, it is invalid.
        """
        return cls(
            group=_group(form),
            confirmation=bulk_actions.Confirmation.of(form),
            rate=parse_rate(str(form.get("rate") or "")),
            force=bool(form.get("force")),
            after=_parse_after(str(form.get("after") or "")),
            so_far=bulk_actions.parse_progress(str(form.get("so_far") or "")),
            subject=str(form.get("subject") or "")[:MAX_SUBJECT_CHARS],
        )

    async def run(self, conn: Connection) -> _RedriveStep:
        """Redrive the messages of this batch; return the next one."""
        found = await _find(conn, self.group, self.confirmation, bulk_actions.BATCH, self.after)
        ids = _of_group(found, self.group)[: self.confirmation.remaining(self.so_far)]
        how = {"rate": self.rate, "delay": bulk_actions.batch_delay(self.so_far, self.rate), "force": self.force}
        so_far = self.so_far + await bulk_actions.run(conn, bulk_actions.BulkAction.REDRIVE, ids, **how)
        is_done = len(found) < bulk_actions.BATCH or not self.confirmation.remaining(so_far)
        return replace(self, after=found[-1].id if found else None, so_far=so_far, is_done=is_done)

    @property
    def fields(self) -> dict[str, Any]:
        """The hidden fields of its form."""
        return {
            **self.group,
            **self.confirmation.fields,
            "rate": f"{self.rate:g}" if self.rate else "",
            "force": "1" if self.force else "",
            "after": "" if self.after is None else str(self.after),
            "so_far": json.dumps(self.so_far),
            "subject": self.subject,
        }


def _parse_after(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdecimal() and int(text[:25]) < 2**63):
        raise Problem(422, "after is no id of a message", "invalid_cursor")
    return int(text)


@router.post("/dead/redrive")
async def redrive(request: Request, caller: Operator) -> Response:
    """Put the next batch of a group back, and say how far it is."""
    step = _RedriveStep.of(await request.form())
    check_permission(caller, Role.OPERATOR, step.group["topic"])
    shown = {"title": f"Redrive {step.group['topic']}", "done": "redriven", "url": "/dead/redrive"}
    return await bulk_actions.run_step(
        request, caller, step, **shown, back=_list_url(step.subject), back_to="the dead letters"
    )


@router.get("/dead/silence")
async def ask_silence(request: Request, caller: Operator) -> Response:
    """Ask for how long the alerts of a group are to be silenced."""
    group = _group(request.query_params)
    check_permission(caller, Role.OPERATOR, group["topic"])
    subject = request.query_params.get("subject", "")
    return render(request, "dead/silence.html", group=group, subject=subject, back=_list_url(subject))


@router.post("/dead/silence")
async def silence(
    request: Request,
    caller: Operator,
    lasts: Annotated[str, Form(max_length=50, alias="for")] = "",
    reason: Annotated[str, Form(max_length=1000)] = "",
    subject: Annotated[str, Form(max_length=2000)] = "",
) -> Response:
    """Silence the alerts of a group, and go back to the groups as they were filtered."""
    group = _group(await request.form())
    group_of = {"topic": group["topic"], "fingerprint": group["fingerprint"]}
    await add_silence(request, caller, lasts=lasts, reason=reason, kind="dead_message", **group_of)
    return await view.redirect(request, _list_url(subject))


@router.post("/dead/unsilence")
async def unsilence(
    request: Request,
    caller: Operator,
    silence_id: Annotated[int, Form(alias="id", ge=1, lt=2**63)],
    subject: Annotated[str, Form(max_length=2000)] = "",
) -> Response:
    """End a silence."""
    await end_silence(request, caller, silence_id)
    return await view.action_result(request, caller, VIEW, "Its alerts are sent again.", subject)


def _list_url(subject: str) -> str:
    """Return the address of the groups, filtered as they were."""
    filtered = DeadFilter.parse(subject).subject
    return f"/dead?{filtered}" if filtered else "/dead"


def _group(values: Any) -> dict[str, Any]:
    """Return topic, result and fingerprint of a group."""
    group = {name: str(values.get(name) or "")[:300] or None for name in ("topic", "result", "fingerprint")}
    if group["topic"] is None or group["result"] not in DEAD:
        raise Problem(422, f"a group has a topic, and a result of {', '.join(DEAD)}", "invalid_group")
    return group
