"""Builds HTML that no text can break: every text is escaped unless it is markup already."""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import escape

# A page must not have these, and they carry no meaning: C0 and C1 controls except tab and line feed, halves of
# surrogate pairs. Characters that change the direction of text would let an error rearrange the line around it.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")

# The places where a name may be broken: after its separators, but not within a number.
_JOINT = re.compile(r"[._/-]+(?=[^\W\d])|=(?=.)")


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Child = str | Markup | None


def text(child: str) -> Markup:
    """Return the text as HTML."""
    if isinstance(child, Markup):
        return child
    return Markup(escape(_UNFIT.sub("\N{REPLACEMENT CHARACTER}", child)))


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Return an element.

    `class_` is the attribute class, `aria_label` is aria-label; None and False leave an attribute out.
    """
    within = "".join(text(child) for child in children if child is not None)
    return Markup(f"<{name}{_attributes(attributes)}>{within}</{name}>")


def named(name: str) -> Markup:
    """Return the name of something, which may be broken into lines where its parts end."""
    return tag("span", Markup(_JOINT.sub(r"\g<0><wbr>", text(name))), class_="name", title=name)


def join(children: Iterable[Child], between: str = "") -> Markup:
    """Return the children one after the other."""
    return Markup(text(between).join(text(child) for child in children if child is not None))


def _attributes(attributes: dict[str, str | float | bool | None]) -> str:
    kept = ((name, value) for name, value in attributes.items() if value is not None and value is not False)
    return "".join(
        f' {name.rstrip("_").replace("_", "-")}="{"" if value is True else text(str(value))}"' for name, value in kept
    )
