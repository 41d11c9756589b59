"""The HTTP API, one router per noun."""

from __future__ import annotations

from fastapi import APIRouter

from pgrouse.web.v1 import dead, message, openapi, publish, schedule, topic, work

from pgrouse.web.v1 import system as fleet

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
