"""`/metrics` of the web server: the whole queue, as the database knows it. The app includes `metrics.router`.

A caller with some topics only gets the metrics of those topics. It needs `pip install 'pgrouse[metrics]'`, and reports
if that is missing.
"""

from __future__ import annotations

import asyncio

import psycopg
from fastapi import APIRouter, Request
from starlette.responses import Response

from pgrouse.web.access.caller import Role
from pgrouse.web.access.database_pool import reading
from pgrouse.web.access.security import RequireRole
from pgrouse.web.http.problem import Problem

router = APIRouter()

# Scrapes are given up after 10 s.
ANSWER_S = 8.0


@router.get("/metrics")
async def metrics(request: Request) -> Response:
    """Return the metrics of the queue.

    While the database is unavailable, no token can be checked, so the answer is only that it is down.
    """
    try:
        from pgrouse.metrics import queue_metrics  # noqa: PLC0415 - extra metrics
    except ModuleNotFoundError as error:
        if error.name != "prometheus_client":
            raise
        raise Problem(
            501, "/metrics needs prometheus_client: pip install 'pgrouse[metrics]'", "not_installed"
        ) from error
    try:
        async with asyncio.timeout(ANSWER_S):
            caller = await RequireRole(Role.VIEWER)(request)
            async with reading(request) as conn:
                found = await queue_metrics.read_queue_metrics(conn, caller.topics)
    except (psycopg.OperationalError, TimeoutError):
        found = queue_metrics.database_down()
    content, media_type = queue_metrics.render(found, request.headers.get("accept", ""))
    return Response(content, media_type=media_type)
