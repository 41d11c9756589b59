"""Thresholds: from when on something about a topic is a condition, which raises alerts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from pydantic import Field, create_model
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.queries.alert import COUNTS, THRESHOLDS, AlertThresholds, find_thresholds, set_thresholds
from pgrouse.config.policy.topic_policy import DEFAULTS
from pgrouse.web.access.database_pool import Connection, reading, writing
from pgrouse.web.access.security import Operator, Viewer
from pgrouse.web.v1.model import AnyTopic, RequestModel, ResponseModel, Wait, example
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1/topics/{topic}/thresholds", tags=["topics"], route_class=StrictRoute)
Count = Annotated[int, Field(ge=0, le=100_000)]


class ThresholdDetail(ResponseModel):
    """The thresholds of a topic. Durations are in seconds; 0: switched off."""

    model_config = example(
        topic="orders.created", thresholds={"backlog_age": 900.0, "dead_per_hour": 100}, own={"backlog_age": 900.0}
    )

    topic: str
    thresholds: dict[str, Any]
    """The effective thresholds: the topic's own, else the defaults."""
    own: dict[str, Any]
    """The thresholds that the topic itself sets."""


class ThresholdRequest(RequestModel):
    """The thresholds to set; null takes the default, 0 switches one off. Those about no topic belong to `*`."""

    model_config = example(backlog_age="10m", dead_per_hour=50)


THRESHOLD_FIELDS: dict[str, Any] = {
    name: (
        (Count if name in COUNTS else Wait) | None,
        Field(None, description=f"{meaning[0].upper()}{meaning[1:]}."),
    )
    for name, meaning in THRESHOLDS.items()
}
if TYPE_CHECKING:
    ThresholdChange = ThresholdRequest
else:
    # Its members are those of the one list.
    ThresholdChange = create_model(
        "ThresholdChange", __base__=ThresholdRequest, __doc__=ThresholdRequest.__doc__, **THRESHOLD_FIELDS
    )


@router.get("", response_model=ThresholdDetail, summary="Show thresholds")
async def get_thresholds(request: Request, caller: Viewer, topic: AnyTopic) -> Response:
    """Return from when on something about a topic is reported. `*` is the defaults."""
    async with reading(request) as conn:
        return ApiResponse(await _read(conn, topic))


@router.patch("", response_model=ThresholdDetail, summary="Change thresholds")
async def change_thresholds(request: Request, caller: Operator, topic: AnyTopic, body: ThresholdChange) -> Response:
    """Set thresholds of a topic, or of `*`. Those that are not given stay as they are."""
    changes = {name: getattr(body, name) for name in body.model_fields_set}
    async with writing(request, caller) as conn:
        if changes:
            await run_async(conn, set_thresholds(topic, changes))
        return ApiResponse(await _read(conn, topic))


async def _read(conn: Connection, topic: str) -> dict[str, Any]:
    rows = {each.topic: each for each in await run_async(conn, find_thresholds())}
    own, defaults = _values(rows.get(topic)), _values(rows[DEFAULTS])
    return {"topic": topic, "thresholds": defaults | own, "own": own}


def _values(found: AlertThresholds | None) -> dict[str, Any]:
    row = {} if found is None else asdict(found)
    return {name: row[name] for name in THRESHOLDS if row.get(name) is not None}
