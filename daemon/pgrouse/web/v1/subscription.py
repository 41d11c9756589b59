"""Subscriptions: which topics get copies of the messages of another."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from pgrouse.client.call import run_async
from pgrouse.client.queries.topic import add_subscription, find_subscriptions, remove_subscription
from pgrouse.web.access.caller import Caller, Role
from pgrouse.web.access.database_pool import read_rows
from pgrouse.web.access.security import check_permission
from pgrouse.web.http.problem import Problem
from pgrouse.web.v1.caller import Operator, Viewer
from pgrouse.web.v1.model import RequestModel, ResponseModel, TimestampText, Topic, example
from pgrouse.web.v1.problem_responses import responses
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1/topics/{topic}/subscriptions", tags=["subscriptions"], route_class=StrictRoute)
CREATED_AT = "2027-01-31T09:00:00+00:00"


class SubscriptionInfo(ResponseModel):
    """One subscription."""

    topic: str
    subscriber: str
    created_at: TimestampText
    """When it was added, in ISO 8601."""
    created_by: str
    """The user who added it."""


class SubscriptionList(ResponseModel):
    """The subscriptions of a topic, on either side."""

    model_config = example(
        subscriptions=[
            {"topic": "orders.created", "subscriber": "mail.send", "created_at": CREATED_AT, "created_by": "ann"}
        ]
    )

    subscriptions: list[SubscriptionInfo]
    """Those that have the topic as `topic` or as `subscriber`."""


class NewSubscription(RequestModel):
    """The topic that is to get copies."""

    model_config = example(subscriber="mail.send")

    subscriber: Topic
    """The topic that gets a copy of each message from now on."""


class SubscriptionResult(ResponseModel):
    """Whether that is new."""

    model_config = example(added=True)

    added: bool
    """False: the topic was a subscriber already."""


class SubscriptionRemoval(ResponseModel):
    """The topic that gets no more copies."""

    model_config = example(removed="mail.send")

    removed: str


@router.get("", response_model=SubscriptionList, summary="List subscriptions")
async def list_subscriptions(request: Request, caller: Viewer, topic: Topic) -> Response:
    """List who gets copies of the messages of a topic, and whose copies it gets.

    The list has only topics that the token may see.
    """
    check_permission(caller, Role.VIEWER, topic)
    async with request.app.state.db.read() as conn:
        rows = await read_rows(conn, find_subscriptions(topic))
    return ApiResponse(
        {"subscriptions": [row for row in rows if caller.sees(row["topic"]) and caller.sees(row["subscriber"])]}
    )


@router.post("", response_model=SubscriptionResult, summary="Add a subscription")
async def add_subscriber(request: Request, caller: Operator, topic: Topic, body: NewSubscription) -> Response:
    """Copy what is published to a topic from now on to another topic."""
    _check_both(caller, topic, body.subscriber)
    async with request.app.state.db.write(caller) as conn:
        added = await run_async(conn, add_subscription(topic, body.subscriber))
    return ApiResponse({"added": added})


@router.delete(
    "/{subscriber}", response_model=SubscriptionRemoval, summary="Remove a subscription", responses=responses(404)
)
async def remove_subscriber(request: Request, caller: Operator, topic: Topic, subscriber: Topic) -> Response:
    """End a subscription. What was copied stays."""
    _check_both(caller, topic, subscriber)
    async with request.app.state.db.write(caller) as conn:
        removed = await run_async(conn, remove_subscription(topic, subscriber))
    if not removed:
        raise Problem(404, f"topic {subscriber} gets no copies of the messages of {topic}", "not_found")
    return ApiResponse({"removed": subscriber})


def _check_both(caller: Caller, *topics: str) -> None:
    for each in topics:
        check_permission(caller, Role.OPERATOR, each)
