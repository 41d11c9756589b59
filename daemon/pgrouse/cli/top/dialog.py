"""The questions and answers that `pgrouse top` puts over its tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from pgrouse.values.format import harmless

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


class Answer(StrEnum):
    """The answer to a question."""

    YES = "yes"
    NO = "no"
    OPTIONS = "options"


class ConfirmDialog(ModalScreen[Answer]):
    """A question that `y` says yes to; everything else is no. has_options: `o` asks for the options."""

    AUTO_FOCUS = ".dialog"
    BINDINGS = [  # noqa: RUF012
        Binding("y", "answer('yes')", "Yes"),
        Binding("o", "answer('options')", "Options"),
        Binding("escape,n,q", "answer('no')", "No"),
    ]

    def __init__(self, title: str, lines: Lines, *, has_options: bool = False) -> None:
        super().__init__()
        self._heading, self._lines, self._has_options = title, lines, has_options

    def compose(self) -> ComposeResult:
        """Draw it."""
        keys = "y yes   n no" + "   o options" * self._has_options
        with Vertical(classes="dialog") as box:
            box.border_title = self._heading
            yield Static(_joined([*self._lines, "", Text(keys, style="bold")]))

    def action_answer(self, answer: str) -> None:
        """Take the answer."""
        if answer != Answer.OPTIONS or self._has_options:
            self.dismiss(Answer(answer))


@dataclass(frozen=True)
class Field:
    """One line of a form.

    Attributes:
        label: what is asked.
        read: turns the text into the value, or raises ValueError.
        text: the initial text.
    """

    label: str
    read: Callable[[str], Any]
    text: str = ""


class FormDialog(ModalScreen[list[Any] | None]):
    """Lines to fill in; Enter confirms all of them, Esc gives up (None)."""

    AUTO_FOCUS = "Input"
    BINDINGS = [Binding("escape", "dismiss(None)", "Give up")]  # noqa: RUF012

    def __init__(self, title: str, lines: Lines, fields: Sequence[Field]) -> None:
        super().__init__()
        self._heading, self._lines, self._fields = title, lines, fields
        self._inputs = [Input(field.text) for field in fields]
        self._problem = Static("")

    def compose(self) -> ComposeResult:
        """Draw it."""
        with Vertical(classes="dialog") as box:
            box.border_title = self._heading
            yield Static(_joined(self._lines))
            for field, line in zip(self._fields, self._inputs, strict=True):
                yield Static(Text(field.label, style="dim"))
                yield line
            yield self._problem
            yield Static(
                Text("Enter confirms   Esc gives up" + "   Tab next line" * (len(self._fields) > 1), style="dim")
            )

    def on_input_submitted(self) -> None:
        """Take the answers, or say which one cannot be read."""
        values = []
        for field, line in zip(self._fields, self._inputs, strict=True):
            try:
                values.append(field.read(line.value.strip()))
            except ValueError as error:
                self._problem.update(Text(harmless(str(error)), style="red"))
                line.focus()
                return
        self.dismiss(values)
