"""Pages: templates, and what every one of them can use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from fastapi import Request
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pgrouse.web.http import static_files
from pgrouse.web.http.base_path import base_path, route_path, with_base_in_page
from pgrouse.web.page import formatting


@dataclass(frozen=True)
class NavLink:
    """One link of the navigation.

    Attributes:
        title: its text.
        path: where it leads.
        key: pressed after `g` it goes there.
        starts_group: a line is drawn above it.
    """

    title: str
    path: str
    key: str
    starts_group: bool = False

    def contains(self, path: str) -> bool:
        """Say whether a page is this place, or below it."""
        return path == self.path or (self.path != "/" and path.startswith(f"{self.path}/"))


NAVIGATION = (
    NavLink("Overview", "/", "o"),
    NavLink("Topics", "/topics", "t"),
    NavLink("Messages", "/messages", "m"),
    NavLink("Dead letters", "/dead", "d"),
    NavLink("Batches", "/batches", "b"),
    NavLink("Workflows", "/workflows", "f"),
    NavLink("Schedules", "/schedules", "s"),
    NavLink("Workers", "/workers", "w"),
    NavLink("Alerts", "/alerts", "l"),
    NavLink("Archive", "/archive", "e"),
    NavLink("Doctor", "/doctor", "c", starts_group=True),
    NavLink("Runbooks", "/runbooks", "r"),
    NavLink("Audit", "/audit", "a"),
    NavLink("Tokens", "/tokens", "k"),
    NavLink("HTTP API", "/v1/docs", "h"),
)

TEMPLATES = Path(__file__).parents[1] / "templates"


@cache
def templates() -> Environment:
    """Return what templates are read by. Their filters are the functions of `formatting`."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"static": static_files.url, "navigation": NAVIGATION}
    formatting.install(environment)
    return environment


def render(request: Request, template: str, **context: Any) -> HTMLResponse:
    """Return a page.

    Templates see `request`, `path` (below the base), `caller` (None: not logged in), `csrf`, `static(name)`, the
    `queue_name`, the `dashboards` of others, and the context.
    """
    text = render_fragment(request, template, **context)
    return HTMLResponse(with_base_in_page(text, base_path(request.scope)))


def render_fragment(request: Request, template: str, **context: Any) -> str:
    """Return the text of a page, or of a part of one, with paths as if the application was at `/`."""
    state = request.state
    shared = {
        "request": request,
        "caller": getattr(state, "caller", None),
        "csrf": getattr(state, "csrf", ""),
        "path": route_path(request.scope),
        **_queues(request),
    }
    return templates().get_template(template).render(shared | context)


def _queues(request: Request) -> dict[str, Any]:
    """Return the name of this queue, and the dashboards of others; none for a request that did not come so far."""
    if "app" not in request.scope:
        return {"queue_name": None, "dashboards": {}}
    settings = request.app.state.settings
    return {"queue_name": settings.alerts.environment, "dashboards": settings.web.dashboards}


def redirect_to_login(request: Request) -> Response:
    """Lead to the door, and back afterwards. A part of a page cannot be led there; it makes the whole page go."""
    wanted = route_path(request.scope) + (f"?{request.url.query}" if request.url.query else "")
    if request.headers.get("hx-request"):
        return Response(status_code=401, headers={"HX-Redirect": "/login"})
    return RedirectResponse(f"/login?next={quote(wanted, safe='')}", status_code=303)
