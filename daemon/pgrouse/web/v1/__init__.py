"""The HTTP API, one router for each kind of resource."""

from __future__ import annotations

from fastapi import APIRouter

from pgrouse.web.v1 import alert, batch, dead, event, schedule, system, work, workflow
from pgrouse.web.v1.description import openapi
from pgrouse.web.v1.messages import message, publish
from pgrouse.web.v1.topics import subscription, threshold, topic

# Only the routers in this list are served.
ROUTERS: list[APIRouter] = [
    publish.router,
    work.router,
    message.router,
    batch.router,
    event.router,
    workflow.router,
    dead.router,
    topic.router,
    subscription.router,
    threshold.router,
    schedule.router,
    alert.router,
    system.router,
    openapi.router,
]
