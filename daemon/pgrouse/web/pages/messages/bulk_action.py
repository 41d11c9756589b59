"""Actions on many messages: a preview, a question, and batches that say how far they are."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fastapi import APIRouter, Request
from starlette.datastructures import FormData
from starlette.responses import Response

from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, reading
from pgrouse.web.access.security import Operator
from pgrouse.web.http.problem import Problem
from pgrouse.web.page import bulk_actions
from pgrouse.web.page.bulk_actions import BulkAction, Confirmation, parse_rate
from pgrouse.web.page.page import render
from pgrouse.web.search import search
from pgrouse.web.search.message_counts import estimate_waiting
from pgrouse.web.search.search import Search, parse_id

router = APIRouter()

MAX_SELECTED = 500
MAX_REASON_CHARS = 1000


@router.get("/messages/preview")
async def preview(request: Request, caller: Operator) -> Response:
    """Say how many messages an action would be done to, and ask."""
    params = request.query_params
    act, ids, wanted = _act(params.get("act")), _ids(params.getlist("chosen")), Search.of(params)
    estimate = None
    async with reading(request) as conn:
        confirmation = await bulk_actions.confirm_now(conn)
        if ids:
            seen = bulk_actions.preview_selected(await bulk_actions.selected(conn, caller, act, ids))
        elif "chosen" in params or "selected" in params:
            raise Problem(422, "nothing is selected: select some messages first", "nothing_selected")
        else:
            arguments = bulk_actions.actionable(wanted.arguments(caller), act)
            seen = await bulk_actions.preview(conn, confirmation.narrow(arguments))
            if seen.at_least:
                estimate = await estimate_waiting(conn, caller, wanted, arguments["states"], at_least=seen.count)
    confirmation = replace(confirmation, most=seen.count)
    fields = {"act": act.value, **confirmation.fields, **wanted.filters(), "ids": ",".join(map(str, ids))}
    context = {
        "act": act,
        "preview": seen,
        "estimate": estimate,
        "fields": fields,
        "search": wanted,
        "chosen": bool(ids),
    }
    return render(request, "messages/bulk_action/preview.html", **context)


@dataclass(frozen=True)
class _ActionStep:
    """One batch of an action, as the form of the batch before it asks for it.

    Attributes:
        caller: whose messages are found.
        act: what to do.
        wanted: with which messages, if none are selected.
        ids: the selected messages; they are one batch.
        confirmation: what the operator confirmed.
        reason: of a cancellation.
        rate: how many messages a second a redrive makes available; None: all at once.
        force: whether messages are redriven that were redriven before.
        after: where the search continues, as JSON; "": at its beginning.
        so_far: the outcomes of all batches before.
        is_done: whether no batch follows.
    """

    caller: Caller
    act: BulkAction
    wanted: Search
    ids: list[int]
    confirmation: Confirmation
    reason: str
    rate: float | None
    force: bool
    after: str
    so_far: Counter[str]
    is_done: bool = False

    @classmethod
    def of(cls, form: Mapping[str, str], caller: Caller) -> _ActionStep:
        """Read the form.

        Raises:
            Problem: 422, it is invalid.
        """
        act, ids = _act(form.get("act")), _ids([form.get("ids", "")])
        return cls(
            caller=caller,
            act=act,
            wanted=Search.of(form),
            ids=ids,
            confirmation=Confirmation.selected(len(ids)) if ids else Confirmation.of(form),
            reason=form.get("reason", "").strip()[:MAX_REASON_CHARS],
            rate=parse_rate(form.get("rate", "")) if act is BulkAction.REDRIVE else None,
            force=bool(form.get("force")),
            after=form.get("after", ""),
            so_far=bulk_actions.parse_progress(form.get("so_far", "")),
        )

    async def run(self, conn: Connection) -> _ActionStep:
        """Run the action on the messages of this batch; return the next one."""
        batch, missed, place = await (self._select(conn) if self.ids else self._find(conn))
        outcomes = await bulk_actions.run(conn, self.act, batch, **self._how)
        so_far = self.so_far + outcomes + Counter(gone=missed)
        is_done = place is None or not self.confirmation.remaining(so_far)
        return replace(self, after="" if place is None else json.dumps(place), so_far=so_far, is_done=is_done)

    async def _select(self, conn: Connection) -> tuple[list[int], int, None]:
        """Return those selected messages that accept the action, and how many do not."""
        rows = await bulk_actions.selected(conn, self.caller, self.act, self.ids)
        return [row["id"] for row in rows], len(self.ids) - len(rows), None

    async def _find(self, conn: Connection) -> tuple[list[int], int, Any]:
        """Return the next messages of the search, and the place where it continues."""
        arguments = self.confirmation.narrow(bulk_actions.actionable(self.wanted.arguments(self.caller), self.act))
        most = self.confirmation.remaining(self.so_far)
        found = await search.find(conn, arguments, limit=max(1, most), after=search.parse_cursor(self.after))
        return [each for each in found.ids if each <= self.confirmation.max_id][:most], 0, found.cursor

    @property
    def _how(self) -> dict[str, Any]:
        """How to act: messages that come after others of the same redrive wait for those."""
        if self.act is BulkAction.CANCEL:
            return {"reason": self.reason or None}
        if self.act is not BulkAction.REDRIVE:
            return {}
        delay = bulk_actions.batch_delay(self.so_far, self.rate)
        return {"rate": self.rate, "delay": delay, "force": self.force}

    @property
    def fields(self) -> dict[str, str]:
        """The hidden fields of its form."""
        return {
            "act": self.act.value,
            **self.confirmation.fields,
            **self.wanted.filters(),
            "ids": ",".join(map(str, self.ids)),
            "reason": self.reason,
            "rate": f"{self.rate:g}" if self.rate else "",
            "force": "1" if self.force else "",
            "after": self.after,
            "so_far": json.dumps(self.so_far),
        }


@router.post("/messages/bulk")
async def run_bulk_action(request: Request, caller: Operator) -> Response:
    """Do the next batch, and say how far it is."""
    step = _ActionStep.of(_texts(await request.form()), caller)
    shown = {"title": step.act.label, "done": step.act.done, "url": "/messages/bulk"}
    back = f"/messages?{step.wanted.query()}"
    return await bulk_actions.run_step(request, caller, step, **shown, back=back, back_to="the list")


def _act(text: Any) -> BulkAction:
    try:
        return BulkAction(str(text))
    except ValueError:
        raise Problem(422, f"act is none of {', '.join(BulkAction)}", "invalid_act") from None


def _ids(texts: list[str]) -> list[int]:
    words = [word for text in texts for word in text.split(",") if word]
    if len(words) > MAX_SELECTED:
        raise Problem(422, f"{len(words):,} messages are selected, {MAX_SELECTED} is the most", "too_many")
    return [parse_id(word) for word in words]


def _texts(form: FormData) -> dict[str, str]:
    return {name: value for name, value in form.items() if isinstance(value, str)}
