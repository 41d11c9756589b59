"""Doctor: everything that goes wrong without a word, with what fixes it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from starlette.responses import Response

from pgrouse.web.caller import Caller, Role
from pgrouse.web.doctor_run import current_doctor_run
from pgrouse.web.page import render
from pgrouse.web.security import check_permission, require_role

router = APIRouter(include_in_schema=False)

Viewer = Annotated[Caller, Depends(require_role(Role.VIEWER))]


@router.get("/doctor")
async def doctor(request: Request, caller: Viewer) -> Response:
    """Show the page; the browser asks for the findings, which take a moment."""
    check_permission(caller, Role.VIEWER)
    doctor_run = current_doctor_run(request.app)
    if "now" in request.query_params:
        await doctor_run.refresh(request.app)
    return render(request, "doctor.html", doctor_run=doctor_run)


@router.get("/doctor/findings")
async def findings(request: Request, caller: Viewer) -> Response:
    """Return the findings as a part of the page."""
    check_permission(caller, Role.VIEWER)
    doctor_run = current_doctor_run(request.app)
    await doctor_run.refresh(request.app)
    return render(request, "doctor/findings.html", doctor_run=doctor_run)
