"""The HTTP API, one router per noun."""

from __future__ import annotations

from fastapi import APIRouter

from pgrouse.web.v1 import dead, fleet, message, openapi, publish, schedule, topic, work

# Every noun is named here: what is not in the list is not served.
ROUTERS: list[APIRouter] = [
    publish.router,
    work.router,
    message.router,
    dead.router,
    topic.router,
    schedule.router,
    fleet.router,
    openapi.router,
]
