"""The table of operations of the HTTP API, as its OpenAPI description and its routes have them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docs.page import replaced
from fastapi.routing import APIRoute

from pgrouse.config.config import Config
from pgrouse.web import application
from pgrouse.web.access.security import RequireRole
from pgrouse.web.v1.description.openapi import description

HEADING = "### All operations"
# The parameters of every list, and of every publish: the page lists them once.
SHARED = {"cursor", "limit", "Idempotency-Key"}


def written(page: str) -> str:
    """Return the page of the HTTP API with its current table of operations."""
    rows = ["| operation | role | does | takes |", "|---|---|---|---|", *operations()]
    return replaced(page, HEADING, "".join(f"{row}\n" for row in rows))


def operations() -> Iterator[str]:
    """Yield a row for each operation, those of one subject together."""
    app = application.create_app(Config())
    described, roles = description(app), _roles(app.routes)
    order = [tag["name"] for tag in described["tags"]]
    found = [(path, method, each) for path, methods in described["paths"].items() for method, each in methods.items()]
    for path, method, each in sorted(found, key=lambda one: order.index(one[2]["tags"][-1])):
        name = f"{method.upper()} {path}"
        takes = ", ".join(f"`{member}`" for member in _members(each, described))
        does = " ".join(each["description"].split()).replace("|", "\\|")
        yield f"| `{name}` | {roles[name]} | {does} | {takes} |"


def _members(operation: dict[str, Any], described: dict[str, Any]) -> Iterator[str]:
    """Yield the names of parameters that are not in the path, and of members of the body."""
    for parameter in operation.get("parameters", []):
        if parameter["in"] != "path" and parameter["name"] not in SHARED:
            yield parameter["name"]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        name = content["schema"].get("$ref", "").rpartition("/")[2]
        yield from described["components"]["schemas"].get(name, {}).get("properties", {})


def _roles(routes: Any) -> dict[str, str]:
    """Return the role that each operation needs."""
    inner = [each for route in routes for each in getattr(getattr(route, "original_router", None), "routes", [route])]
    return {
        f"{method} {route.path}": check.call.role.value
        for route in inner
        if isinstance(route, APIRoute)
        for check in route.dependant.dependencies
        if isinstance(check.call, RequireRole)
        for method in route.methods
    }
