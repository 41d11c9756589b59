"""The questions and answers that `pgrouse top` puts over its tables."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from pgrouse.format import harmless

Lines = Sequence[str | Text]


def _joined(lines: Lines) -> Text:
    return Text("\n").join([each if isinstance(each, Text) else Text(harmless(each)) for each in lines])


class NoteDialog(ModalScreen[None]):
    """Something to read; any of the usual keys closes it."""

    AUTO_FOCUS = ".dialog"
    BINDINGS = [Binding("escape,enter,q,question_mark", "dismiss(None)", "Close")]  # noqa: RUF012

    def __init__(self, title: str, lines: Lines) -> None:
        super().__init__()
        self._heading, self._lines = title, lines

    def compose(self) -> ComposeResult:
        """Draw it."""
        with VerticalScroll(classes="dialog") as box:
            box.border_title = self._heading
            yield Static(_joined([*self._lines, "", Text("Esc closes", style="dim")]))


class ConfirmDialog(ModalScreen[bool]):
    """A question that `y` says yes to; everything else is no."""

    AUTO_FOCUS = ".dialog"
    BINDINGS = [Binding("y", "dismiss(True)", "Yes"), Binding("escape,n,q", "dismiss(False)", "No")]  # noqa: RUF012

    def __init__(self, title: str, lines: Lines) -> None:
        super().__init__()
        self._heading, self._lines = title, lines

    def compose(self) -> ComposeResult:
        """Draw it."""
        with VerticalScroll(classes="dialog") as box:
            box.border_title = self._heading
            yield Static(_joined([*self._lines, "", Text("y yes   n no", style="bold")]))


class AskDialog(ModalScreen[str | None]):
    """A question with a line to answer it; Enter confirms, Esc gives up (None). An empty answer is none."""

    AUTO_FOCUS = "Input"
    BINDINGS = [Binding("escape", "dismiss(None)", "Give up")]  # noqa: RUF012

    def __init__(self, title: str, lines: Lines, label: str, *, value: str = "", integer: bool = False) -> None:
        super().__init__()
        self._heading, self._lines, self._label = title, lines, label
        self._value, self._kind = value, "integer" if integer else "text"

    def compose(self) -> ComposeResult:
        """Draw it."""
        with Vertical(classes="dialog") as box:
            box.border_title = self._heading
            yield Static(_joined(self._lines))
            yield Input(self._value, placeholder=self._label, type=self._kind)  # type: ignore[arg-type]
            yield Static(Text("Enter confirms   Esc gives up", style="dim"))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Take the answer."""
        if event.value.strip():
            self.dismiss(event.value.strip())
