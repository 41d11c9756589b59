"""`/livez` and `/readyz` of the web server, open to everybody: they say nothing but yes or no."""

from __future__ import annotations

import asyncio
from functools import cache

import psycopg
from fastapi import APIRouter, Request
from starlette.responses import PlainTextResponse, Response

from pgrouse.database.install import schema

router = APIRouter()


@cache
def _required_migrations() -> frozenset[str]:
    return frozenset(each.name for each in schema.scripts() if each.kind == "migration")


# Probes give up soon; the answer must come before.
ANSWER_S = 2.0


@router.get("/livez")
async def livez() -> Response:
    """Say that the process turns."""
    return PlainTextResponse("ok\n")


@router.get("/readyz")
async def readyz(request: Request) -> Response:
    """Say whether requests can be answered: the database does, and has the schema of this version."""
    if request.app.state.stopping.is_set():
        return PlainTextResponse("stopping\n", 503)
    try:
        async with asyncio.timeout(ANSWER_S), request.app.state.db.read() as conn:
            applied = await (await conn.execute(schema.APPLIED)).fetchall()
    except (psycopg.Error, TimeoutError):
        return PlainTextResponse("the database does not answer, or has no schema\n", 503)
    missing = _required_migrations() - {row["name"] for row in applied}
    return (
        PlainTextResponse(f"no migration {min(missing)}: run pgrouse migrate\n", 503)
        if missing
        else PlainTextResponse("ok\n")
    )
