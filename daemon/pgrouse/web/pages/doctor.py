"""Doctor: everything that goes wrong without a word, with what fixes it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from pgrouse.web.access.caller import Role
from pgrouse.web.access.security import Viewer, check_permission
from pgrouse.web.background.doctor_run import current_doctor_run
from pgrouse.web.page.page import render

router = APIRouter()


@router.get("/doctor")
async def doctor(request: Request, caller: Viewer) -> Response:
    """Show the page; the browser asks for the findings, which take a moment."""
    check_permission(caller, Role.VIEWER)
    doctor_run = current_doctor_run(request.app)
    if "now" in request.query_params:
        await doctor_run.refresh(request.app)
    return render(request, "doctor/page.html", doctor_run=doctor_run)


@router.get("/doctor/findings")
async def findings(request: Request, caller: Viewer) -> Response:
    """Return the findings as a part of the page."""
    check_permission(caller, Role.VIEWER)
    doctor_run = current_doctor_run(request.app)
    await doctor_run.refresh(request.app)
    return render(request, "doctor/findings.html", doctor_run=doctor_run)
