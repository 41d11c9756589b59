"""Subscriptions: which topics get copies of the messages of another."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from pgrouse.client.queries.topic import Subscription, add_subscription, find_subscriptions, remove_subscription
from pgrouse.web.access.caller import Role
from pgrouse.web.access.database_pool import run_read, run_write
from pgrouse.web.access.security import Operator, Viewer, check_permission
from pgrouse.web.http.problem import Problem
from pgrouse.web.v1.description.problem_responses import responses
from pgrouse.web.v1.model import Removal, RequestModel, ResponseModel, Topic, TopicOrPattern, example, members_of
from pgrouse.web.v1.response import ApiResponse
from pgrouse.web.v1.route import StrictRoute

router = APIRouter(prefix="/v1/topics/{topic}/subscriptions", tags=["subscriptions"], route_class=StrictRoute)


@members_of(Subscription)
class SubscriptionInfo(ResponseModel):
    """One subscription."""

    model_config = example(created_at="2027-01-31T09:00:00+00:00", created_by="ann")


class SubscriptionList(ResponseModel):
    """The subscriptions of a topic, on either side."""

    subscriptions: list[SubscriptionInfo]
    """Those that have the topic as `topic` or as `subscriber`."""


class NewSubscription(RequestModel):
    """The topic that is to get copies."""

    subscriber: Topic
    """The topic that gets a copy of each message from now on."""


class SubscriptionResult(ResponseModel):
    """Whether that is new."""

    added: bool
    """False: the topic was a subscriber already."""


@router.get("", response_model=SubscriptionList, summary="List subscriptions")
async def list_subscriptions(request: Request, caller: Viewer, topic: TopicOrPattern) -> Response:
    """List who gets copies of the messages of a topic, and whose copies it gets.

    The list has only topics that the token may see.
    """
    found = await run_read(request, find_subscriptions(topic))
    visible = [each for each in found if caller.sees(each.topic) and caller.sees(each.subscriber)]
    return ApiResponse({"subscriptions": list(map(SubscriptionInfo.of, visible))})


@router.post("", response_model=SubscriptionResult, summary="Add a subscription")
async def add_subscriber(request: Request, caller: Operator, topic: TopicOrPattern, body: NewSubscription) -> Response:
    """Copy what is published to a topic from now on to another topic."""
    check_permission(caller, Role.OPERATOR, body.subscriber)
    added = await run_write(request, caller, add_subscription(topic, body.subscriber))
    return ApiResponse({"added": added})


@router.delete("/{subscriber}", response_model=Removal, summary="Remove a subscription", responses=responses(404))
async def remove_subscriber(request: Request, caller: Operator, topic: TopicOrPattern, subscriber: Topic) -> Response:
    """End a subscription. What was copied stays."""
    check_permission(caller, Role.OPERATOR, subscriber)
    removed = await run_write(request, caller, remove_subscription(topic, subscriber))
    if not removed:
        raise Problem(404, f"topic {subscriber} gets no copies of the messages of {topic}", "not_found")
    return ApiResponse({"removed": subscriber})
