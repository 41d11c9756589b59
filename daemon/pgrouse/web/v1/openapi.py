"""`/v1/openapi.json`: the description of the API, and a page to read it. Both are open to everybody, as the documentation is."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from pgrouse.web.page import render
from pgrouse.web.v1.response import Answer
from pgrouse.web.v1.model import Problem
from pgrouse.web.v1.publish import Message, Messages

router = APIRouter(prefix="/v1", include_in_schema=False)

ABOUT = """The HTTP API of pgrouse: publish, work and operate messages from any language.

Every error is `application/problem+json`. Lists are read page by page: `next` of one is the `cursor` of the following, null at the end.
"""
# Models that routes read or answer by themselves.
OWN = (Message, Messages, Problem)


def description(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description; made once."""
    if app.openapi_schema is None:
        schema = get_openapi(title="pgrouse", version=version("pgrouse"), description=ABOUT, routes=app.routes)
        parts = schema.setdefault("components", {})
        shapes = parts.setdefault("schemas", {})
        for model in OWN:
            described = model.model_json_schema(ref_template="#/components/schemas/{model}")
            shapes |= described.pop("$defs", {})
            shapes[model.__name__] = described
        # What the framework says of faults is not what is answered.
        for name in ("HTTPValidationError", "ValidationError"):
            shapes.pop(name, None)
        parts["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer", "description": "`pgrouse token add`"},
            "basic": {"type": "http", "scheme": "basic", "description": "The token as the password, with any name."},
        }
        schema["security"] = [{"token": []}, {"basic": []}]
        app.openapi_schema = schema
    return app.openapi_schema


@router.get("/openapi.json")
async def show_description(request: Request) -> Response:
    """Return the description."""
    return Answer(description(request.app), headers={"Cache-Control": "no-cache"})


@router.get("/docs")
async def show_docs(request: Request) -> Response:
    """Show the description as a page."""
    return render(request, "api.html", api=description(request.app))
