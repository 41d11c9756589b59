"""Tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pyspark_pgrouse.report.html.markup import Child, Markup, tag


def data_table(
    heads: Sequence[str], rows: Iterable[Sequence[Child]], caption: str | None = None, texts: int = 1
) -> Markup:
    """Return a table.

    The first `texts` columns are words, and the first of them names its row; the others are numbers.
    """
    head = tag("tr", *(tag("th", h, scope="col", class_=_class(i, texts)) for i, h in enumerate(heads)))
    body = (tag("tr", *(_cell(i, c, texts) for i, c in enumerate(row))) for row in rows)
    return tag("table", tag("caption", caption) if caption else None, tag("thead", head), tag("tbody", *body))


def grouped_table(name: str, groups: Mapping[str, Sequence[str]], rows: Iterable[Sequence[Child]]) -> Markup:
    """Return a table with columns in groups.

    The title of a group is above the heads of its columns. name: the heading of its rows.
    """
    over = (tag("th", title, scope="colgroup", colspan=len(heads), class_="group") for title, heads in groups.items())
    # The first column of each group is separated from the group before.
    firsts = [i == 0 for heads in groups.values() for i in range(len(heads))]
    under = (
        tag("th", head, scope="col", class_="n group" if i == 0 else "n")
        for heads in groups.values()
        for i, head in enumerate(heads)
    )
    body = (
        tag(
            "tr",
            tag("th", first, scope="row"),
            *(tag("td", c, class_="n group" if g else "n") for c, g in zip(cells, firsts, strict=True)),
        )
        for first, *cells in rows
    )
    head = (tag("tr", tag("th", name, scope="col", rowspan=2), *over), tag("tr", *under))
    return tag("table", tag("thead", *head), tag("tbody", *body), class_="grouped")


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
