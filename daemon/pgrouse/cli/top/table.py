"""A table for changing rows.

The cursor stays with its row, columns keep their width, and only visible rows are drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from rich.style import Style
from rich.text import Text
from textual.binding import Binding
from textual.events import Click
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from pgrouse.values.format import harmless

R = TypeVar("R")


@dataclass(frozen=True)
class LiveColumn:
    """One column.

    Attributes:
        title: its heading.
        width: in characters; 0 = what the others leave.
        show: what it shows of a row; None is a dash.
        style: how a row's value is drawn.
        right: whether it is right-aligned, as numbers are.
        from_width: shown only where the table has at least this width, in characters.
        share: of several columns without a width, how much of the rest this one gets.
    """

    title: str
    width: int
    show: Callable[[Any], str | None]
    style: Callable[[Any], str] = lambda _: ""
    right: bool = False
    from_width: int = 0
    share: int = 1


class LiveTable(ScrollView, Generic[R], can_focus=True):
    """Rows of one kind, by a key that identifies them.

    Args:
        title: what they are.
        columns: the columns.
        key: identifies a row from one refresh to the next.
        words: what of a row a filter looks at.
        empty: what is said if there are none.
    """

    DEFAULT_CSS = """
    LiveTable { height: 1fr; min-height: 4; overflow-x: hidden; scrollbar-size-vertical: 1; }
    LiveTable:focus { height: 2fr; }
    """
    BINDINGS = [  # noqa: RUF012 - as textual has it
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "end(-1)", "First", show=False),
        Binding("end,G", "end(1)", "Last", show=False),
    ]

    def __init__(
        self,
        title: str,
        columns: Sequence[LiveColumn],
        key: Callable[[R], object],
        words: Callable[[R], str],
        empty: str,
        *,
        id: str,  # noqa: A002 - textual's name
    ) -> None:
        super().__init__(id=id)
        self.heading, self.columns, self.key, self.words, self.empty = title, list(columns), key, words, empty
        self.filter = ""
        self.remark = ""
        # None: nothing is known yet.
        self._all: list[R] | None = None
        self.rows: list[R] = []
        self.cursor = 0

    @property
    def chosen(self) -> R | None:
        """The row that the cursor is on; None if there is none."""
        return self.rows[self.cursor] if self.rows else None

    def show(self, rows: Sequence[R]) -> None:
        """Show these rows. The cursor stays with its row; if that is gone, where it was."""
        self._all = list(rows)
        self._refilter()

    def narrow(self, text: str) -> None:
        """Show only rows with this text, whatever its case."""
        self.filter = text.lower()
        self._refilter()

    def _refilter(self) -> None:
        at = None if self.chosen is None else self.key(self.chosen)
        self.rows = [row for row in self._all or [] if self.filter in self.words(row).lower()]
        found = next((n for n, row in enumerate(self.rows) if self.key(row) == at), self.cursor)
        self.cursor = max(0, min(found, len(self.rows) - 1))
        self.virtual_size = Size(self.size.width, len(self.rows) + 2)
        self._reveal()
        self.refresh()

    def on_resize(self) -> None:
        """Keep the cursor in view."""
        self.virtual_size = Size(self.size.width, len(self.rows) + 2)
        self._reveal()

    def action_move(self, by: int) -> None:
        """Move the cursor by a number of rows."""
        self.cursor = max(0, min(self.cursor + by, len(self.rows) - 1))
        self._reveal()
        self.refresh()

    def action_page(self, by: int) -> None:
        """Move the cursor by a page."""
        self.action_move(by * max(1, self.size.height - 3))

    def action_end(self, by: int) -> None:
        """Move the cursor to the first or last row."""
        self.action_move(by * len(self.rows))

    def on_click(self, event: Click) -> None:
        """Move the cursor to where the user clicked."""
        if event.y >= 2:  # noqa: PLR2004 - below title and headings
            self.action_move(event.y - 2 + self.scroll_offset.y - self.cursor)

    def _reveal(self) -> None:
        # The first two lines stand still: what scrolls is below them.
        height, top = self.size.height - 2, self.scroll_offset.y
        if height > 0 and not top <= self.cursor < top + height:
            self.scroll_to(y=self.cursor if self.cursor < top else self.cursor - height + 1, animate=False)

    def render_line(self, y: int) -> Strip:
        """Draw one line: the title, the headings, or a row."""
        width = self.size.width
        if y == 0:
            return self._strip(self._title(), width)
        if y == 1:
            return self._strip(self._line(None, width), width, Style(dim=True))
        at = y - 2 + self.scroll_offset.y
        if at < len(self.rows):
            style = Style(reverse=True) if at == self.cursor and self.has_focus else Style()
            return self._strip(self._line(self.rows[at], width), width, style)
        if at == 0:
            return self._strip(Text(self._nothing(), style="dim"), width)
        return Strip.blank(width, self.rich_style)

    def _nothing(self) -> str:
        if self._all is None:
            return "reading"
        return f"no row has {self.filter!r}" if self._all else self.empty

    def _title(self) -> Text:
        if self._all is None:
            return Text(self.heading, style="bold")
        count = f"{len(self.rows):,} of {len(self._all):,}" if self.filter else f"{len(self._all):,}"
        title = Text(f"{self.heading} {count}", style="bold underline" if self.has_focus else "bold")
        return title.append(f"  {self.remark}", style="not bold not underline dim") if self.remark else title

    def _line(self, row: R | None, width: int) -> Text:
        line = Text()
        for column, wide in self._widths(width):
            shown = column.title if row is None else column.show(row)
            text = Text(
                "-" if shown is None else harmless(shown).replace("\n", " "), style="dim" if shown is None else ""
            )
            if row is not None and shown is not None:
                text.stylize(column.style(row))
            text.truncate(wide, overflow="ellipsis")
            text.align("right" if column.right else "left", wide)
            line.append_text(text).append(" ")
        return line

    def _widths(self, width: int) -> list[tuple[LiveColumn, int]]:
        shown = [column for column in self.columns if width >= column.from_width]
        rest = width - sum(column.width + 1 for column in shown)
        shares = sum(column.share for column in shown if not column.width)
        return [(each, each.width or max(5, rest * each.share // max(1, shares))) for each in shown]

    def _strip(self, text: Text, width: int, style: Style | None = None) -> Strip:
        # What has no spans is rendered without its style.
        text.end = ""
        text.stylize_before(text.style)
        strip = Strip(list(text.render(self.app.console))).adjust_cell_length(width)
        return strip.apply_style(self.rich_style + style if style else self.rich_style)

    def watch_has_focus(self, _focused: bool) -> None:
        """Draw the cursor, or take it away."""
        self.refresh()
