"""Tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark_pgrouse.report.html.markup import Child, Markup, tag


def data_table(
    heads: Sequence[str], rows: Iterable[Sequence[Child]], caption: str | None = None, texts: int = 1
) -> Markup:
    """Return a table. Its first columns, as many as `texts` says, are words and the first of them names its row; the others are numbers."""
    head = tag("tr", *(tag("th", h, scope="col", class_=_class(i, texts)) for i, h in enumerate(heads)))
    body = (tag("tr", *(_cell(i, c, texts) for i, c in enumerate(row))) for row in rows)
    return tag("table", tag("caption", caption) if caption else None, tag("thead", head), tag("tbody", *body))


def bar(part: float, colour: str = "c1") -> Markup:
    """Return a bar for a share of the widest one."""
    return tag(
        "span",
        tag("i", class_=colour, style=f"width:{max(0.0, min(1.0, part)) * 100:.3g}%"),
        class_="bar",
        aria_hidden="true",
    )


def _cell(i: int, child: Child, texts: int) -> Markup:
    if i == 0:
        return tag("th", child, scope="row")
    return tag("td", child, class_=_class(i, texts))


def _class(i: int, texts: int) -> str | None:
    return "n" if i >= texts else None
