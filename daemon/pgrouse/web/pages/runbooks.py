"""Runbooks: what to do about everything that alerts.

They are part of the documentation, so they need no token: they are read while the database, which knows the tokens, is
away.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise

from fastapi import APIRouter, Request
from markdown_it import MarkdownIt
from markupsafe import Markup
from starlette.responses import Response

from pgrouse.alerts import runbooks
from pgrouse.web.access.security import identify
from pgrouse.web.page.page import render

router = APIRouter()

# Other pages of the documentation are not served here: what links to them stays as text.
ELSEWHERE = re.compile(r"\[([^\]]+)\]\((?!#)[^)]+\)")


@router.get(runbooks.PAGE)
async def show_runbooks(request: Request) -> Response:
    """Show the page."""
    await identify(request)
    return render(request, "runbooks/page.html", runbooks=_html(), sections=runbooks.sections())


@cache
def _html() -> Markup:
    markdown = MarkdownIt("commonmark", {"html": False})
    tokens = markdown.parse(ELSEWHERE.sub(r"\1", runbooks.text()))
    for opening, title in pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", runbooks.anchor(title.content))
    rendered = markdown.renderer.render(tokens, markdown.options, {})
    # A long command is scrolled by keys, too. The page is our own, and no HTML in it is kept.
    return Markup(rendered.replace("<pre>", '<pre tabindex="0">'))  # noqa: S704
