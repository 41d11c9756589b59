"""`/v1/openapi.json`: the OpenAPI description, and a page that shows it. Both need no token."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from pgrouse.web.page import render
from pgrouse.web.v1.model import ProblemDetails
from pgrouse.web.v1.publish import PublishBatchRequest, PublishRequest
from pgrouse.web.v1.response import ApiResponse

router = APIRouter(prefix="/v1", include_in_schema=False)

ABOUT = """The HTTP API of pgrouse: publish, process and manage messages from any language.

Every error is `application/problem+json`. Lists are paged: pass `next` of one page as the `cursor` of the following request; it is null on the last page.
"""
# Models of bodies that routes read or write by themselves.
HAND_WRITTEN = (PublishRequest, PublishBatchRequest, ProblemDetails)


def description(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI description; generated once."""
    if app.openapi_schema is None:
        schema = get_openapi(title="pgrouse", version=version("pgrouse"), description=ABOUT, routes=app.routes)
        parts = schema.setdefault("components", {})
        shapes = parts.setdefault("schemas", {})
        for model in HAND_WRITTEN:
            described = model.model_json_schema(ref_template="#/components/schemas/{model}")
            shapes |= described.pop("$defs", {})
            shapes[model.__name__] = described
        # The error responses of FastAPI are not those of this API.
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
    """Return the OpenAPI description."""
    return ApiResponse(description(request.app), headers={"Cache-Control": "no-cache"})


@router.get("/docs")
async def show_docs(request: Request) -> Response:
    """Show the OpenAPI description as a page."""
    return render(request, "api.html", api=description(request.app))
