"""Views: pages that are shown, kept up to date while they are open, and acted on.

A view has a folder of templates: `page.html`, which extends frame/base.html, and one template for each of its parts.
The page has the part inside an element with the part's id; nothing else of the page changes by itself:

    <section id="waiting" class="panel">{% include "overview/waiting.html" %}</section>

    VIEW = View("overview", read_context, parts=("waiting",))

    @router.get("/")
    async def overview(request: Request, caller: Viewer) -> Response:
        return await view.show(request, caller, VIEW)

`read` reads what the page shows, in one transaction that only reads; templates see what it returns, and `caller`.
`read_measures` reads what the workers report every few seconds, so it is read less often; under the key `charts` it
returns data for the macro `chart`, by the chart's id. Forms with text to type belong outside of parts.

An action is a POST whose form is made by the macro `action`, or has `hx-post` and `hx-swap="none"`; it answers with
`view.action_result`. All of the class names are in app.css, all macros in frame/macros.html.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from fastapi import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from pgrouse.web.access.caller import Caller
from pgrouse.web.access.database_pool import Connection, reading
from pgrouse.web.http.base_path import route_path
from pgrouse.web.page.page import render, templates
from pgrouse.web.page.problems import read_problems

Context = dict[str, Any]
ReadContext = Callable[[Connection, Caller, str], Awaitable[Context]]


async def _read_nothing(_conn: Connection, _caller: Caller, _subject: str) -> Context:
    return {}


@dataclass(frozen=True)
class View:
    """One kind of page.

    Attributes:
        folder: of its templates.
        read: reads what it shows to a caller of a subject (a topic, an id, a query; "" if there is only one page of the
            kind). Raises Problem 404 if there is no such subject.
        parts: the ids of what changes while it is looked at.
        read_measures: reads what the workers measured, after `read`.
    """

    folder: str
    read: ReadContext
    parts: tuple[str, ...]
    read_measures: ReadContext = _read_nothing

    @property
    def name(self) -> str:
        """Return its name: the last part of its folder."""
        return self.folder.rpartition("/")[2]

    async def read_all(self, conn: Connection, caller: Caller, subject: str) -> Context:
        """Read all that the page shows."""
        context = await self.read_with_problems(conn, caller, subject)
        return context | await self.read_measures(conn, caller, subject)

    async def read_with_problems(self, conn: Connection, caller: Caller, subject: str) -> Context:
        """Read what the page shows except measures, and the problems, which every page counts."""
        return {"problems": await read_problems(conn, caller)} | await self.read(conn, caller, subject)

    def live_url(self, subject: str) -> str:
        """Return the address from which the browser gets updates."""
        return f"/live/{self.name}" + (f"?subject={quote(subject, safe='')}" if subject else "")

    def render_parts(self, context: Context, caller: Caller, csrf: str = "") -> dict[str, str]:
        """Return the text of each part."""
        shared = {"caller": caller, "csrf": csrf} | context
        parts = {part: templates().get_template(f"{self.folder}/{part}.html").render(shared) for part in self.parts}
        return parts | {"problem-count": templates().get_template("frame/problem_count.html").render(shared)}


async def show(request: Request, caller: Caller, view: View, subject: str = "", **more: Any) -> HTMLResponse:
    """Answer with the page; templates see `more` too."""
    async with reading(request) as conn:
        context = await view.read_all(conn, caller, subject)
    return render(request, f"{view.folder}/page.html", **context, **more, live_url=view.live_url(subject))


async def action_result(
    request: Request,
    caller: Caller,
    view: View,
    text: str,
    subject: str = "",
    kind: str = "",
    replaced: Callable[[Context], dict[str, str]] | None = None,
) -> Response:
    """Answer an action: say what was done, and show the page as it is now, to anyone who looks at it.

    The kind "bad" says what was not done.

    `replaced` returns by its id what else is shown again; not what was typed there. Without a script in the browser: go
    back to the page.
    """
    request.app.state.live_updates.notify()
    if not request.headers.get("hx-request"):
        return RedirectResponse(_referring_page(request), status_code=303)
    async with reading(request) as conn:
        context = await view.read_all(conn, caller, subject)
    parts = view.render_parts(context, caller, getattr(request.state, "csrf", ""))
    more = replaced(context) if replaced else {}
    return render(request, "frame/action_result.html", parts=parts, replaced=more, text=text, kind=kind)


async def redirect(request: Request, path: str) -> Response:
    """Answer an action after which there is another page to look at."""
    request.app.state.live_updates.notify()
    if request.headers.get("hx-request"):
        return Response(status_code=204, headers={"HX-Redirect": path})
    return RedirectResponse(path, status_code=303)


def _referring_page(request: Request) -> str:
    """Return the path of the page with the form, below the base: never one of another site."""
    before = urlsplit(request.headers.get("referer", ""))
    path = route_path({**request.scope, "path": before.path})
    return path if before.netloc == request.url.netloc and path.startswith("/") else "/"
