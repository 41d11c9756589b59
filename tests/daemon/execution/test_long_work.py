"""Long and periodic work: the handlers of docs/reference/python.md, run by a daemon."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.daemon.process import Daemon, Fleet, until_armed
from tests.docs.page import Page
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue

PAGE = Page("docs/reference/python.md")
MODULE = "\n\n".join(
    ["from __future__ import annotations"]
    + [block.text for block in PAGE.blocks if block.kind == "python runnable long-work"]
)


@pytest.fixture
def start(fleet: Fleet, database: Database) -> Callable[..., Daemon]:
    """Starts a daemon with the page's handlers in the module `page`."""

    def start(topics: dict[str, str], **worker: object) -> Daemon:
        folder = fleet.folder / "page"
        folder.mkdir()
        (folder / "page.py").write_text(MODULE)
        daemon = fleet.launch(
            topics,
            dsn=database.dsn,
            environ={"DATABASE_URL": database.dsn, "PGROUSE_HANDLERS__IMPORT_PATH": str(folder)},
            **worker,
        )
        until_armed(database.connect(), daemon)
        return daemon

    return start


def test_a_long_job_yields_its_channels_slot_after_each_piece(start: Callable[..., Daemon], queue: Queue) -> None:
    queue.policy("reindex", channel_concurrency=1)
    long = queue.publish("reindex", payload={"pages": 200}, channel="acme")
    short = queue.publish("reindex", payload={"pages": 0}, channel="acme")

    start({"reindex": "page:reindex"})

    ended = eventually(lambda: queue.archived(long), within_s=90)
    assert queue.archived(short).output == "0 pages"
    assert queue.archived(short).archived_at < ended.archived_at
    assert (ended.output, ended.attempts, ended.runs) == ("200 pages", 1, 201)


def test_a_message_that_never_ends_drives_a_schedule(start: Callable[..., Daemon], queue: Queue) -> None:
    queue.policy("clock", max_attempts=0)
    clock = queue.publish("clock", payload={"every_s": 0.1})
    start({"clock": "page:every_now_and_then"})

    eventually(lambda: len(queue.rows("SELECT FROM messages.message WHERE topic = 'report.build'")) >= 5)

    ticks = [row.payload["tick"] for row in queue.rows("SELECT payload FROM messages.message "
        "WHERE topic = 'report.build' ORDER BY id")]  # fmt: skip
    assert ticks == list(range(1, len(ticks) + 1))
    resting = eventually(
        lambda: queue.rows("SELECT * FROM messages.message WHERE id = %s AND claim_id IS NULL", [clock])
    )
    assert (resting[0].attempts, resting[0].state) == (0, resting[0].runs)
    assert {entry["outcome"] for entry in resting[0].history} == {"deferred"}


def test_a_long_piece_of_work_is_visible_and_yields_to_a_stop(start: Callable[..., Daemon], queue: Queue) -> None:
    daemon = start({"export": "page:export"})
    published = queue.publish("export", payload={"rows": 1_000_000_000})
    eventually(lambda: (queue.message(published).progress or {}).get("done", 0) > 1)

    assert daemon.stop() == 0

    left = queue.message(published)
    assert left.claim_id is None
    assert 0 < left.state <= left.progress["done"]
    assert (left.attempts, left.progress["total"], left.progress["unit"]) == (0, 1_000_000_000, "rows")
