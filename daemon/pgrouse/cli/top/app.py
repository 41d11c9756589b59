"""The screen of `pgrouse top`: charts of the last hour, topics, workers and dead messages, and actions on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, TypeVar

import psycopg
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.widgets import Footer, Input, Static

from pgrouse.cli.top import action
from pgrouse.cli.top.dialog import Answer, ConfirmDialog, Field, FormDialog, NoteDialog
from pgrouse.cli.top.feed import Feed, ReadFailure, error_text
from pgrouse.cli.top.field import read_delay, read_end, read_id, read_rate, read_text, read_yes
from pgrouse.cli.top.snapshot import DeadRow, QueueSnapshot, TopicRow, WorkerRow
from pgrouse.cli.top.table import LiveColumn, LiveTable
from pgrouse.client.call import run
from pgrouse.client.calls import operate
from pgrouse.client.calls.monitoring.stats import COUNT_BOUND
from pgrouse.client.connection.database import Database
from pgrouse.client.redrive import REDRIVEN_OUTCOMES, SKIP_REASONS
from pgrouse.config.duration import show
from pgrouse.values.error_line import last_line
from pgrouse.values.format import harmless, plural, show_age, show_estimate, sparkline

T = TypeVar("T")
WIDE = 110

STATE_STYLES = {"running": "green", "paused": "cyan", "breaker": "yellow", "unhandled": "yellow"}
WORKER_STYLES = {"working": "green", "draining": "yellow", "stopping": "yellow", "silent": "red", "gone": "dim"}
# Names of topics sort them; of numbers the highest comes first.
ORDERS: dict[str, Callable[[TopicRow], Any]] = {
    "name": lambda row: row.topic,
    "ready": lambda row: (-row.ready, row.topic),
    "dead": lambda row: (-row.dead_last_day, row.topic),
    "rate": lambda row: (-(row.rate or 0), row.topic),
}

HELP = [
    "Tab, 1 2 3    from table to table; the one in use is the largest",
    "↑ ↓ PgUp PgDn Home End    choose a row; j and k, too",
    "/             show only rows with a text; Esc shows all again",
    "o             topics by name, ready, dead or rate",
    "p             pause the chosen topic, or resume it",
    "r             put the chosen group of dead messages back; o there: how",
    "e             explain a message: why it does not run, how it ended",
    "space         freeze, or go on",
    "q             quit",
    "",
    "READY and DELAYED are estimates from 1,000 on (≈). DEAD and the groups are those of 24 hours.",
    "RATE is messages claimed per minute, WAIT and RUN are 95th percentiles, of the last 5 minutes.",
    "The charts show the last hour, minute by minute.",
]


def _seconds(value: float | None) -> str | None:
    return None if value is None else show_age(value)


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"  # noqa: PLR2004


def _red_if(count: Callable[[Any], float]) -> Callable[[Any], str]:
    return lambda row: "red" if count(row) else ""


def _waiting(count: int) -> str:
    return show_estimate(count, is_estimate=count >= COUNT_BOUND)


def _topics() -> LiveTable[TopicRow]:
    columns = [
        LiveColumn("TOPIC", 0, lambda t: t.topic),
        LiveColumn("READY", 8, lambda t: _waiting(t.ready), right=True),
        LiveColumn("RUNNING", 7, lambda t: f"{t.running:,}", right=True),
        LiveColumn("DELAYED", 8, lambda t: _waiting(t.delayed), right=True, from_width=WIDE),
        LiveColumn("DEAD", 7, lambda t: f"{t.dead_last_day:,}", _red_if(lambda t: t.dead_last_day), right=True),
        LiveColumn("OLDEST", 6, lambda t: _seconds(t.oldest_ready_s), right=True),
        LiveColumn("RATE", 7, lambda t: _number(t.rate), right=True),
        LiveColumn("WAIT", 5, lambda t: _seconds(t.wait_p95_s), right=True),
        LiveColumn("RUN", 5, lambda t: _seconds(t.run_p95_s), right=True),
        LiveColumn("STATE", 9, lambda t: t.state, lambda t: STATE_STYLES[t.state]),
    ]
    return LiveTable(
        "Topics", columns, lambda t: t.topic, lambda t: t.topic, "no topic yet: publish a message", id="topics"
    )


def _works_on(worker: WorkerRow) -> str | None:
    limits: dict[str, int] = worker.topic_limits
    shown = [f"{topic} {count:,}" + _of(limits.get(topic)) for topic, count in worker.running.items()]
    return ", ".join(shown) or None


def _of(limit: int | None) -> str:
    return "" if limit is None else f" of {limit:,}"


def _workers() -> LiveTable[WorkerRow]:
    columns = [
        LiveColumn("WORKER", 0, lambda w: w.name),
        LiveColumn("STATE", 8, lambda w: w.state, lambda w: WORKER_STYLES.get(w.state, "")),
        LiveColumn("SEEN", 6, lambda w: show_age(w.age), right=True),
        LiveColumn("LISTENER", 10, lambda w: w.listener, lambda w: "" if w.listener == "listening" else "yellow"),
        LiveColumn("SLOTS", 6, lambda w: f"{w.concurrency:,}", right=True, from_width=WIDE),
        LiveColumn("SINCE", 6, lambda w: _seconds(w.oldest_s), right=True, from_width=WIDE),
        LiveColumn("WORKS ON", 0, _works_on, share=2),
    ]
    empty = "no worker: start one with `pgrouse run`"
    return LiveTable(
        "Workers", columns, lambda w: w.name, lambda w: f"{w.name} {' '.join(w.topics)}", empty, id="workers"
    )


def _dead() -> LiveTable[DeadRow]:
    columns = [
        LiveColumn("DEAD", 6, lambda g: f"{g.count:,}{'+' if g.at_least else ''}", lambda _: "red", right=True),
        LiveColumn("TOPIC", 0, lambda g: g.topic),
        LiveColumn("RESULT", 12, lambda g: g.result, from_width=WIDE),
        LiveColumn("LAST", 5, lambda g: _seconds(g.last_s), right=True),
        LiveColumn("BY HOUR", 12, lambda g: sparkline(g.trend[-12:]).rjust(12)),
        LiveColumn("SAMPLE", 9, lambda g: str(g.sample_id), right=True),
        LiveColumn("FINGERPRINT", 16, lambda g: g.error_fingerprint, from_width=WIDE),
        LiveColumn("ERROR", 0, lambda g: last_line(g.sample_error or "") or g.result, share=2),
    ]
    return LiveTable(
        "Dead",
        columns,
        lambda g: (g.topic, g.result, g.error_fingerprint),
        lambda g: f"{g.topic} {g.result} {g.error_fingerprint} {last_line(g.sample_error or '')}",
        "no dead message in 24 hours",
        id="dead",
    )


class FeedMessage(Message):
    """A message from the feed."""

    def __init__(self, what: QueueSnapshot | ReadFailure | Exception) -> None:
        super().__init__()
        self.what = what


class Top(App[None]):
    """The live view.

    Args:
        db: where to look.
        every: how often.
    """

    TITLE = "pgrouse top"
    ENABLE_COMMAND_PALETTE = False
    AUTO_FOCUS = "#topics"
    CSS = """
    Screen { background: ansi_default; }
    #state, #charts { height: auto; padding: 0; }
    #charts { height: 3; }
    #filter { display: none; height: 1; border: none; padding: 0; background: ansi_default; }
    #filter.open { display: block; }
    ModalScreen { align: center middle; background: transparent; }
    .dialog {
      width: 74; max-width: 96%; height: auto; max-height: 90%;
      border: round ansi_cyan; padding: 0 1; background: ansi_default;
    }
    .dialog Input {
      border: none; height: 1; margin: 0 0 1 0; padding: 0; background: ansi_default; text-style: underline;
    }
    Footer { background: ansi_default; }
    """
    BINDINGS: ClassVar[list[Any]] = [
        Binding("1", "app.go('topics')", "Topics", show=False),
        Binding("2", "app.go('workers')", "Workers", show=False),
        Binding("3", "app.go('dead')", "Dead", show=False),
        Binding("p", "pause", "Pause"),
        Binding("r", "redrive", "Redrive"),
        Binding("e", "explain", "Explain"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("o", "order", "Order"),
        Binding("space", "freeze", "Freeze"),
        Binding("escape", "unfilter", "All", show=False),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("q,ctrl+c", "quit", "Quit"),
    ]

    def __init__(self, db: Database, every: timedelta) -> None:
        super().__init__()
        self.theme = "ansi-dark"  # the terminal's own colours, so that they suit a light one, too
        self.feed = Feed(db, every.total_seconds(), self._post_feed_message)
        self.topics_table, self.workers_table, self.dead_table = _topics(), _workers(), _dead()
        self.state_line, self.charts = Static("connecting", id="state"), Static("", id="charts")
        self.filter_line = Input(placeholder="show rows with this text", id="filter")
        self.snapshot: QueueSnapshot | None = None
        self.trouble: ReadFailure | None = None
        self.is_frozen = False
        self.order = "name"
        self._every = every
        # A bug of the feed, to be raised by the caller.
        self.failure: Exception | None = None

    def compose(self) -> ComposeResult:
        """Draw what there is before anything is known."""
        yield self.state_line
        yield self.charts
        yield self.topics_table
        yield self.workers_table
        yield self.dead_table
        yield self.filter_line
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to look, and say so: the first answer of a busy server takes its time."""
        self._show_state()
        self.feed.start()

    def on_unmount(self) -> None:
        """Look no more."""
        self.feed.stop()

    def _post_feed_message(self, what: QueueSnapshot | ReadFailure | Exception) -> None:
        self.post_message(FeedMessage(what))

    def on_feed_message(self, event: FeedMessage) -> None:
        """Show what the feed has read."""
        match event.what:
            case QueueSnapshot() as it:
                self.trouble = None
                if not self.is_frozen:
                    self.snapshot = it
                    self._show()
            case ReadFailure() as it:
                self.trouble = it
            case error:
                self.failure = error
                self.exit()
        self._show_state()

    def on_resize(self) -> None:
        """Draw the charts as wide as there is room."""
        self._show_charts()

    def _show(self) -> None:
        if self.snapshot is None:
            return
        self.topics_table.remark = "" if self.order == "name" else f"by {self.order}"
        self.topics_table.show(sorted(self.snapshot.topics, key=ORDERS[self.order]))
        self.workers_table.show(self.snapshot.workers)
        if self.snapshot.dead is not None:
            self.dead_table.show(self.snapshot.dead)
        self._show_charts()

    def _show_state(self) -> None:
        found, trouble = self.snapshot, self.trouble
        line = Text("pgrouse top", style="bold", no_wrap=trouble is None, overflow="ellipsis")
        if found is not None:
            line.append(f"  {harmless(found.database)}  {found.at:%H:%M:%S}", style="not bold")
        if trouble is not None:
            line.append(f"  {'no database' if trouble.is_disconnected else 'no answer'}", style="bold red")
            line.append(f", again in {show_age(trouble.again_s)}: {harmless(trouble.why)}", style="not bold red")
        elif self.is_frozen:
            line.append("  frozen", style="bold yellow")
        else:
            line.append("  connecting" if found is None else f"  every {show_age(self._every)}", style="not bold dim")
        self.state_line.update(Text("\n").join([line, *_problems(found)]))

    def _show_charts(self) -> None:
        if self.snapshot is None:
            return
        times = self.snapshot.times
        rows: list[tuple[str, Sequence[float | None], Callable[[float | None], str | None]]] = [
            ("ended/min", times.rate, _number),
            ("wait p95", times.wait_p95_s, _seconds),
            ("run p95", times.run_p95_s, _seconds),
        ]
        width = max(10, min(60, self.size.width - 20))
        lines = [
            Text(f"{name:<10}", style="dim")
            .append(sparkline(values[-width:]).rjust(width), style="cyan not dim")
            .append(f" {_latest(values, show)}", style="bold not dim")
            for name, values, show in rows
        ]
        self.charts.update(Text("\n").join(lines))

    # Moving and filtering

    def action_go(self, table: str) -> None:
        """Go to a table."""
        self.query_one(f"#{table}").focus()

    def action_filter(self) -> None:
        """Open the line that narrows the tables."""
        self.filter_line.add_class("open")
        self.filter_line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Narrow the tables while the user types."""
        if event.input is self.filter_line:
            for table in (self.topics_table, self.workers_table, self.dead_table):
                table.narrow(event.value)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Leave the line; the filter stays."""
        if event.input is self.filter_line:
            self.topics_table.focus()
            event.input.set_class(bool(event.value), "open")

    def action_unfilter(self) -> None:
        """Show all rows again."""
        self.filter_line.value = ""
        self.filter_line.remove_class("open")
        self.topics_table.focus()

    def action_order(self) -> None:
        """Take the next order of topics."""
        names = list(ORDERS)
        self.order = names[(names.index(self.order) + 1) % len(names)]
        self._show()

    def action_freeze(self) -> None:
        """Let everything stand still, or go on."""
        self.is_frozen = not self.is_frozen
        self._show_state()

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(NoteDialog("Keys", HELP))

    # Doing

    @work(exclusive=True, group="dialog")
    async def action_pause(self) -> None:
        """Pause the chosen topic, or resume it."""
        chosen = self.topics_table.chosen
        if chosen is None:
            return
        if chosen.state == "paused":
            confirm = ConfirmDialog("Resume", [f"Let topic {chosen.topic} go on?"])
            if await self.push_screen_wait(confirm) is Answer.YES:
                await self._resume(chosen.topic)
            return
        lines = [f"Pause topic {chosen.topic}?", "None of its messages is claimed until then; running handlers go on."]
        answers = await self.push_screen_wait(FormDialog("Pause", lines, PAUSE_FIELDS))
        if answers is not None:
            await self._pause(chosen.topic, *answers)

    async def _pause(self, topic: str, reason: str, end: timedelta | datetime | None) -> None:
        resume_in, until = (end, None) if isinstance(end, timedelta) else (None, end)
        if await self._do(partial(run, call=operate.pause(topic, reason, resume_in, until))) is not FAILED:
            self.notify(f"paused {topic}")

    async def _resume(self, topic: str) -> None:
        done = await self._do(partial(run, call=operate.resume(topic)))
        if done is True:
            self.notify(f"resumed {topic}")
        elif done is False:
            self.notify("all topics are paused, not this one: run `pgrouse topic resume '*'`", severity="warning")

    @work(exclusive=True, group="dialog")
    async def action_redrive(self) -> None:
        """Put the chosen group of dead messages back, after a look at what that would do."""
        group = self.dead_table.chosen
        if group is None:
            return
        options: action.RedriveOptions | None = action.RedriveOptions()
        while options is not None:
            options = await self._ask_redrive(group, options)

    async def _ask_redrive(self, group: DeadRow, options: action.RedriveOptions) -> action.RedriveOptions | None:
        """Say what a redrive would do, and do it if that is wanted; return the options with which to ask again."""
        would = await self._do(partial(action.preview, group=group, options=options))
        if would is FAILED:
            return None
        match await self.push_screen_wait(ConfirmDialog("Redrive", _preview(would), has_options=True)):
            case Answer.YES if would.ids:
                await self._redrive(would, options)
            case Answer.OPTIONS:
                answers = await self.push_screen_wait(FormDialog("Redrive", [], _redrive_fields(options)))
                return options if answers is None else action.RedriveOptions(*answers)
        return None

    async def _redrive(self, would: action.GroupPreview, options: action.RedriveOptions) -> None:
        outcomes = await self._do(partial(action.redrive, ids=would.ids, options=options))
        if outcomes is not FAILED:
            self.notify(
                f"put back {plural(sum(outcomes[each] for each in REDRIVEN_OUTCOMES), 'message')} "
                f"of {would.group.topic}"
            )

    @work(exclusive=True, group="dialog")
    async def action_explain(self) -> None:
        """Explain a message."""
        group = self.dead_table.chosen if self.dead_table.has_focus else None
        value = "" if group is None else str(group.sample_id)
        answers = await self.push_screen_wait(
            FormDialog("Explain", ["Which message?"], [Field("its id", read_id, value)])
        )
        if answers is None:
            return
        reasons = await self._do(partial(action.explain, message_id=answers[0]))
        if reasons is not FAILED:
            lines = [Text(f"{each.code}  ", style="bold").append(harmless(each.reason), "not bold") for each in reasons]
            await self.push_screen_wait(NoteDialog(f"Message {answers[0]}", lines))

    async def _do(self, do: Callable[[psycopg.Connection], T]) -> T | Any:
        """Let the feed run an action; return its result, or FAILED after the reason was shown to the user."""
        future: Future[T] = self.feed.ask(do)
        try:
            return await asyncio.wrap_future(future)
        except Exception as error:  # noqa: BLE001 - what is no error of the database is raised by error_text()
            self.notify(error_text(error), title="That did not work", severity="error", timeout=10)
            return FAILED


def _problems(found: QueueSnapshot | None) -> list[Text]:
    """Return the line of the worst problem, with the number of the others; none if nothing is wrong."""
    if found is None or not found.problems:
        return []
    worst, *others = found.problems
    style = "bold red" if worst.severity == "page" else "yellow"
    more = f" (and {plural(len(others), 'more problem')}: `pgrouse alert conditions`)" if others else ""
    return [Text(harmless(worst.what) + more, style=style)]


FAILED = object()
PAUSE_FIELDS = [
    Field("the reason, for others to see", read_text),
    Field("for how long, like 30m, or until when; empty: until it is resumed", read_end),
]


def _latest(values: Sequence[float | None], show: Callable[[float | None], str | None]) -> str:
    latest = next((value for value in reversed(values) if value is not None), None)
    return show(latest) or "-"


def _redrive_fields(options: action.RedriveOptions) -> list[Field]:
    return [
        Field("how many become available per second; empty: all at once", read_rate, f"{options.rate or ''}"),
        Field(
            "when the first one does, like 10m; empty: now", read_delay, show(options.delay) if options.delay else ""
        ),
        Field(
            "also those that were redriven max_redrives times: yes or no", read_yes, "yes" if options.force else "no"
        ),
    ]


def _preview(would: action.GroupPreview) -> list[str | Text]:
    group = would.group
    if not would.ids:
        return ["Nothing would be put back.", *_stay(would)]
    more = [f"There are more: these are the oldest {action.AT_ONCE:,}, put back the others afterwards."]
    return [
        Text(f"Put {plural(len(would.ids), 'dead message')} back into {group.topic}?", style="bold"),
        f"{group.result}: {last_line(group.sample_error or '') or '-'}",
        *_stay(would),
        *(more if would.there_are_more else []),
    ]


def _stay(would: action.GroupPreview) -> list[str]:
    return [f"{plural(count, 'message')} {SKIP_REASONS[outcome]}" for outcome, count in would.staying.items()]
