"""The drawing of a workflow: a box for each message, or for many of one topic, from left to right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from pgrouse.client.calls.workflow import WorkflowMessage
from pgrouse.client.message_state import DEAD

# Workflows with more messages have a box for all of one topic that are equally far from the beginning.
MAX_SINGLE = 60
# With more boxes than this there is no drawing.
MAX_BOXES = 150
WIDTH, HEIGHT = 190, 46
GAP_X, GAP_Y = 56, 14
TOPIC_CHARS = 25
# Which of the states in a box gives it its colour: the first one.
KINDS = (
    *((state, "bad") for state in DEAD),
    ("held", "warn"),
    ("retrying", "warn"),
    ("running", "info"),
    ("ready", ""),
    ("delayed", ""),
    ("waiting", ""),
    ("blocked", ""),
    ("success", "good"),
)


@dataclass
class Box:
    """One or more messages.

    Attributes:
        messages: at least one.
        states: how many of them are in each state.
        x, y: its upper left corner.
    """

    messages: list[WorkflowMessage]
    column: int
    x: int = 0
    y: float = 0

    @property
    def states(self) -> Counter[str]:
        """How many messages are in each state; held ones are so called."""
        return Counter("held" if each.is_held else each.state or "not kept" for each in self.messages)

    @property
    def kind(self) -> str:
        """Its colour."""
        return next((kind for state, kind in KINDS if self.states[state]), "")

    @property
    def title(self) -> str:
        """The topic, which may be longer than the box."""
        return self.messages[0].topic or "not kept"

    @property
    def label(self) -> str:
        """The topic as it fits in."""
        return self.title if len(self.title) <= TOPIC_CHARS else f"{self.title[: TOPIC_CHARS - 1]}…"

    @property
    def note(self) -> str:
        """What became of its messages."""
        if len(self.messages) == 1:
            return f"{self.messages[0].id} {next(iter(self.states)).replace('_', ' ')}"
        return f"{len(self.messages):,}: " + ", ".join(f"{n:,} {each}" for each, n in self.states.most_common(2))


@dataclass(frozen=True)
class WorkflowDrawing:
    """Boxes, the lines between them as SVG writes their paths, and its size."""

    boxes: list[Box]
    lines: list[str]
    width: int
    height: int


def draw(messages: Sequence[WorkflowMessage]) -> WorkflowDrawing | None:
    """Draw the messages of a workflow, each after those that it comes after; None: they are too many."""
    boxes, box_of = _boxes(messages)
    if len(boxes) > MAX_BOXES:
        return None
    pairs = {(id(box_of[before]), id(box_of[each.id])) for each in messages for before in each.after or ()}
    by_id = {id(box): box for box in boxes}
    before: dict[int, list[Box]] = {key: [by_id[a] for a, b in pairs if b == key] for key in by_id}
    columns: dict[int, list[Box]] = {}
    for box in boxes:
        columns.setdefault(box.column, []).append(box)
    height = max(map(len, columns.values())) * (HEIGHT + GAP_Y)
    for column, rows in sorted(columns.items()):
        # Each as near as possible to those before it.
        rows.sort(key=lambda box: fmean([each.y for each in before[id(box)]] or [0]))
        for place, box in enumerate(rows):
            box.x = column * (WIDTH + GAP_X)
            box.y = (place + 0.5) * height / len(rows) - HEIGHT / 2
    lines = sorted(_line(by_id[a], by_id[b]) for a, b in pairs if a != b)
    return WorkflowDrawing(boxes, lines, len(columns) * (WIDTH + GAP_X) - GAP_X, height)


def _boxes(messages: Sequence[WorkflowMessage]) -> tuple[list[Box], dict[int, Box]]:
    """Return the boxes, and in which box each message is."""
    columns: dict[int, int] = {}
    boxes: dict[object, Box] = {}
    box_of = {}
    for each in messages:
        column = columns[each.id] = max((columns[before] + 1 for before in each.after or ()), default=0)
        key = each.id if len(messages) <= MAX_SINGLE else (column, each.topic)
        box = box_of[each.id] = boxes.setdefault(key, Box([], column))
        box.messages.append(each)
    return list(boxes.values()), box_of


def _line(one: Box, other: Box) -> str:
    x, y, end_x, end_y = one.x + WIDTH, one.y + HEIGHT / 2, other.x, other.y + HEIGHT / 2
    bend = GAP_X / 2
    return f"M{x} {y:.1f}C{x + bend:.0f} {y:.1f} {end_x - bend:.0f} {end_y:.1f} {end_x} {end_y:.1f}"
