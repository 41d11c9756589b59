"""Draw the pictures in docs/images again: the dashboard, `pgrouse top` and a report, with made-up data. Needs chromium.

python -m docs.pictures [NAME ...]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.postgres import Postgres
from playwright.sync_api import Browser, Page, sync_playwright
from psycopg import sql
from psycopg.types.json import Jsonb

from pgrouse.cli.top.app import Top
from pgrouse.client.connection.database import Database
from pgrouse.config import config
from tests.pipeline.reports import rich
from tests.sql.exports import export
from tests.sql.queue import Queue
from tests.sql.sinks import Sink
from tests.web.chromium import ARGUMENTS, CHROMIUM
from tests.web.site import Site

IMAGES = Path(__file__).parent / "images"
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused by relay-%s"
TOPICS = ("mail.send", "orders.created", "reports.build", "thumbs.make")
PLANS = ("enterprise", "team", "solo")
Step = Callable[[Page], object]


def order(n: int) -> Jsonb:
    """Return the payload of an order."""
    return Jsonb({"order": 40000 + n, "customer": {"id": 7100 + n, "plan": PLANS[n % 3]}})


def seed(queue: Queue) -> None:
    """Put a week of a shop into the queue: failures, actions of operators, and messages that run now."""
    _make_days(queue)
    queue.policy("mail.send", max_attempts=3, max_concurrency=20, dequeue_rate=200)
    queue.policy("mail.send", backoff=Jsonb({"kind": "exponential", "base": "2s"}))
    for hours in (150, 141, 126, 110, 96, 90, 71, 64, 50, 49, 47, 30, 28, 12, 9, 2, 1):
        _fail(queue, hours)
    _reject(queue, 50)
    _schedule(queue)
    queue.conn.execute("SET messages.fake_now = ''")
    queue.clock_stands_still = False
    _act(queue)
    _alert(queue)
    _measure(queue)
    _work(queue)
    _start_workflow(queue)
    _export(queue)
    queue.conn.execute("SELECT messages.tick('daemon')")
    queue.conn.execute("ANALYZE messages.message, messages.message_archive")


def _make_days(queue: Queue) -> None:
    """Create the archive's partitions for the days of the week before."""
    for ago in range(1, 8):
        day = queue.value("SELECT (messages.now() AT TIME ZONE 'UTC')::date - %s", [ago])
        bounds = f"FROM ('{day} 00:00+00') TO ('{day + timedelta(1)} 00:00+00')"
        queue.conn.execute(
            f"CREATE TABLE messages.message_archive_{day:%Y%m%d} PARTITION OF messages.message_archive FOR "
            f"VALUES {bounds}".encode()
        )


def _fail(queue: Queue, hours: int) -> None:
    """Make a message fail three times, this long ago."""
    queue.stop_clock("now")
    queue.later(f"-{hours} hours")
    published = queue.publish("mail.send", payload=order(hours), channel=f"tenant-{hours % 7}")
    _age(queue, "message", "created_at", [published])
    for attempt in range(3):
        queue.later("30 seconds")
        claimed = queue.claim("mail.send", worker="app-2:17:4f2c/0")
        queue.later("40 milliseconds")
        queue.settle("retry", claimed, [REFUSED % (2 - attempt)] * len(claimed))
    _age(queue, "message_archive", "archived_at", [published])


def _reject(queue: Queue, hours: int) -> None:
    queue.stop_clock("now")
    queue.later(f"-{hours} hours")
    published = queue.publish_many(17, "thumbs.make")
    queue.settle("reject", queue.claim("thumbs.make"), ["payload.width: Input should be greater than 0"] * 17)
    _age(queue, "message_archive", "archived_at", published)


def _age(queue: Queue, table: str, column: str, ids: list[int]) -> None:
    """Set a time of the server's clock to the time of the queue's clock."""
    update = sql.SQL("UPDATE messages.{} SET {} = messages.now() WHERE id = ANY (%s)")
    queue.conn.execute(update.format(sql.Identifier(table), sql.Identifier(column)), [ids])


def _schedule(queue: Queue) -> None:
    queue.stop_clock("now")
    queue.later("-3 minutes")
    queue.conn.execute("SET messages.actor = 'ci'")
    queue.schedule("nightly-report", "0 3 * * *", topic="reports.build")
    queue.schedule("ping", "30 seconds", topic="mail.send")
    for _ in range(4):
        queue.later("30 seconds")
        queue.conn.execute("SELECT messages.fire_schedules()")
    queue.conn.execute("UPDATE messages.schedule_run SET fired_at = tick WHERE fired_at > tick")


def _act(queue: Queue) -> None:
    cancelled = queue.publish_many(3, "thumbs.make")
    dead = [row.id for row in queue.rows("SELECT id FROM messages.dead WHERE topic = 'mail.send' ORDER BY id LIMIT 5")]
    for actor, statement, values in (
        ("ann", "SELECT messages.redrive(%s)", [dead]),
        ("ann", "SELECT messages.pause('reports.build', 'the disk is full')", []),
        ("ann", "SELECT messages.resume('reports.build')", []),
        ("ben", "SELECT messages.cancel(%s, 'wrong size')", [cancelled]),
        ("ben", "SELECT messages.silence('dead_message', 'thumbs.make', p_for => '4 hours', p_reason => 'known')", []),
    ):
        queue.conn.execute("SELECT set_config('messages.actor', %s, false)", [actor])
        queue.conn.execute(statement.encode(), values)


def _alert(queue: Queue) -> None:
    """Make two sinks take the alerts; one of them has been unreachable for some minutes."""
    for sink in ("mail", "pager"):
        Sink(queue, sink).next()
    queue.conn.execute(
        "UPDATE messages.alert_sink SET failing_since = clock_timestamp() - interval '6 min', failures = 4,"
        " last_error = '503 Service Unavailable' WHERE name = 'pager'"
    )


def _measure(queue: Queue) -> None:
    queue.conn.execute(
        """INSERT INTO messages.measure (minute, topic, success, retried, failed, waits, runs, wakes)
           SELECT date_trunc('minute', clock_timestamp()) - n * interval '1 min', t.topic, a, a / 60, a / 400,
                  messages.pack_histogram(jsonb_build_object(8 + t.k, a, 14 + t.k, (a * r / 9)::integer)),
                  messages.pack_histogram(jsonb_build_object(12 + 2 * t.k, a, 17 + 2 * t.k, (a * r / 8)::integer)),
                  messages.pack_histogram(jsonb_build_object(9, a / 7, 11, (a * r / 40)::integer))
           FROM unnest(%s::text[]) WITH ORDINALITY AS t (topic, k), generate_series(-3, 59) AS n,
                LATERAL (SELECT ((1.4 + sin(n / 9.0 + t.k)) * 700 / t.k)::integer AS a, random() AS r) AS rate""",
        [list(TOPICS)],
    )


def _work(queue: Queue) -> None:
    for number, topics in ((1, ["orders.created", "mail.send"]), (2, list(TOPICS))):
        queue.call("register_worker", f"app-{number}:17:4f2c", f"app-{number}", 17, "0.1.0", topics, 60)
    queue.conn.execute("""UPDATE messages.worker SET status = '{"listener": "listening", "in_flight": 3}'""")
    queue.publish_many(102, "orders.created", wait="20 minutes")
    for n in range(8):
        queue.publish("mail.send", payload=order(60 + n), key=f"order:{40060 + n}" if n % 3 == 0 else None)
    for n in range(6):
        queue.publish("orders.created", payload=order(80 + n))
    queue.claim("orders.created", worker="app-1:17:4f2c/0", limit=4)


def _start_workflow(queue: Queue) -> None:
    """Publish an order in steps; one of them died."""
    check = queue.publish("order.check")
    queue.settle("complete", queue.claim("order.check"))
    bill, pack, label = (queue.send(topic=f"order.{step}", after=[check]).id for step in ("bill", "pack", "label"))
    queue.settle("complete", queue.claim("order.bill"))
    queue.settle("fail", queue.claim("order.label"), ["TimeoutError: the carrier did not answer"])
    queue.claim("order.pack", worker="app-1:17:4f2c/0")
    ship = queue.send(topic="order.ship", after=[bill, pack, label]).id
    queue.send(topic="mail.send", after=[ship])


def _export(queue: Queue) -> None:
    """Make one export that has read everything, and another one that has not begun."""
    export(
        queue, "lake", queue.value("SELECT id FROM messages.message_archive ORDER BY archive_xid DESC, id DESC LIMIT 1")
    )
    export(queue, "audit")


def type_a_policy(page: Page) -> None:
    """Type two settings into the form, and show it below the limits."""
    page.locator('[name="max_attempts"]').fill("5")
    page.locator('[name="timeout"]').fill("2m")
    page.wait_for_timeout(1500)
    above = page.get_by_role("heading", name="Limits")
    above.evaluate("heading => scrollTo(0, heading.getBoundingClientRect().top + scrollY - 96)")


def dashboard(queue: Queue) -> dict[str, tuple[str, tuple[int, int], str, Step]]:
    """Return each picture: its page, its size, its colours, and the step before it."""
    dead = queue.value("SELECT max(id) FROM messages.dead WHERE topic = 'mail.send' AND redriven_as IS NULL")
    workflow = queue.value("SELECT max(workflow_id) FROM messages.predecessor_list")
    return {
        "dashboard-workflow": (f"/workflows/{workflow}", (1500, 760), "light", _nothing),
        "dashboard-overview": ("/", (1180, 1000), "light", _nothing),
        "dashboard-topics": ("/topics", (1180, 480), "light", _nothing),
        "dashboard-topic": ("/topics/mail.send", (1180, 900), "dark", type_a_policy),
        "dashboard-schedule": ("/schedules/ping", (1180, 640), "light", _nothing),
        "dashboard-workers": ("/workers", (1180, 720), "light", _nothing),
        "dashboard-archive": ("/archive", (1180, 760), "light", _nothing),
        "dashboard-messages": ("/messages", (1280, 860), "light", _nothing),
        "dashboard-message": (f"/messages/{dead}", (1280, 900), "dark", _nothing),
        "dashboard-dead": ("/dead?window=7d", (1280, 760), "light", _nothing),
        "dashboard-alerts": ("/alerts", (1280, 800), "light", _nothing),
        "dashboard-audit": ("/audit", (1280, 700), "dark", _nothing),
    }


def _nothing(_page: Page) -> None:
    pass


def shoot(browser: Browser, name: str, url: str, size: tuple[int, int], colours: Any, step: Step = _nothing) -> None:
    """Save one picture."""
    width, height = size
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours)
    page.goto(url)
    page.wait_for_timeout(2500)
    step(page)
    page.screenshot(path=IMAGES / f"{name}.png")
    page.close()
    sys.stdout.write(f"drew {name}.png\n")


async def top(dsn: str) -> str:
    """Return `pgrouse top` as a page with a drawing."""
    app = Top(Database(config.DatabaseSettings(dsn=dsn), "pictures"), timedelta(seconds=1))
    async with app.run_test(size=(111, 30)) as pilot:
        while app.snapshot is None:
            await pilot.pause(0.1)
        await pilot.pause(0.5)
        drawing = app.export_screenshot(title="pgrouse top")
    return f"<style>body {{ margin: 0 }} svg {{ width: 100vw }}</style>{drawing}"


def main(wanted: list[str]) -> None:
    """Draw the requested pictures; without names, all of them."""
    with (
        Postgres() as postgres,
        postgres.database("shop") as database,
        database.connect() as conn,
        TemporaryDirectory() as folder,
    ):
        seed(queue := Queue(conn))
        pages = {"top": Path(folder, "top.html"), "report": Path(folder, "report.html")}
        pages["top"].write_text(asyncio.run(top(database.dsn)))
        pages["report"].write_text(rich())
        site = Site(database.dsn)
        pictures = {name: (site.url + path, *how) for name, (path, *how) in dashboard(queue).items()}
        pictures["top"] = (pages["top"].as_uri(), (1360, 782), "dark")
        pictures["report"] = (pages["report"].as_uri(), (1240, 1400), "light")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
            for name in wanted or pictures:
                shoot(browser, name, *pictures[name])
            browser.close()
        site.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
