"""A part of the page."""

from __future__ import annotations

from pyspark_pgrouse.report.html.markup import Child, Markup, tag


def section(ident: str, title: str, lead: Child, *content: Child) -> Markup:
    """Return a section with its heading; lead: its subject, in a sentence or two."""
    return tag("section", tag("h2", title), tag("p", lead, class_="lead"), *content, id=ident, aria_label=title)


def card(*content: Child) -> Markup:
    """Return a box that can be scrolled sideways where the page is narrow."""
    return tag("div", *content, class_="card scroll")


def more(shown: int, of: int, table: str) -> Markup | None:
    """Return a text that says where the rest is; None if nothing is left out."""
    if shown >= of:
        return None
    return tag("p", f"The first {shown:,} of {of:,}; all are in the table ", tag("code", table), ".", class_="rest")
