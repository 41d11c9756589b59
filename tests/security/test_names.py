"""Names have no invisible characters, and none that change the direction of text.

With those one name looks like another.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any

import httpx
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from pgrouse import InvalidMessage, NewMessage, publish_many
from pgrouse.config import config
from pgrouse.config.source import ConfigProblems
from pgrouse.publishing.new_message import LABEL, to_columns
from pgrouse.values.printable import printable
from pyspark_pgrouse.publish import check
from tests.api.site import Site, code
from tests.server.postgres import Database
from tests.sql.queue import Queue

SPOOFED = (
    "\u202egnp.exe",  # turns the direction
    "a\u2066b",  # isolates
    "orders\u200b",  # has no width
    "a\u200db",  # joins
    "or\u00adders",  # is a soft hyphen
    "\ufefforders",  # is a mark of the byte order
    "\u2764\ufe0f",  # chooses a variant
    "a\U000e0041",  # is a tag
    "a\u2028b",  # separates lines
    "a\x9bb",  # is a control
    "a\u3164",  # is a filler
)
ORDINARY = ["order-4711", "Zürich", "日本語", "a b", "Ørsted & Søn", "naïve", "\u0627\u0644\u0639", "😀", "a\u0301"]
BY_NAME = pytest.mark.parametrize("name", SPOOFED)


@pytest.fixture(scope="module")
def queue(shared: Database) -> Queue:
    return Queue(shared.connect())


def refused(queue: Queue, statement: str, *values: Any) -> str | None:
    """The SQLSTATE with which a statement is refused; None if it is not. It is rolled back."""
    try:
        with queue.conn.transaction(force_rollback=True):
            queue.conn.execute(statement.encode(), values)
    except psycopg.Error as error:
        return error.sqlstate
    return None


STATEMENTS = {
    "a channel": ("INSERT INTO messages.message (topic, payload, channel) VALUES ('t', '1', %s)", "23514"),
    "a key": ("INSERT INTO messages.message (topic, payload, key) VALUES ('t', '1', %s)", "23514"),
    "a key that may be there": ("SELECT messages.publish('t', '1', p_key => %s, p_on_conflict => 'ignore')", "23514"),
    "a channel's policy": ("INSERT INTO messages.channel (topic, channel, concurrency) VALUES ('t', %s, 1)", "22023"),
    "a channel that is paused": ("SELECT messages.pause('t', p_channel => %s)", "22023"),
    "a schedule's key": (
        "INSERT INTO messages.schedule (name, cron, topic, payload, key) VALUES ('s', '* * * * *', 't', '1', %s)",
        "22023",
    ),
    "a schedule's channel": (
        "INSERT INTO messages.schedule (name, cron, topic, payload, channel) VALUES ('s', '* * * * *', 't', '1', %s)",
        "22023",
    ),
    "a job": ("SELECT messages.begin_staging(%s)", "22023"),
    "a worker that claims": ("SELECT * FROM messages.claim(%s, ARRAY['t'], 1)", "22023"),
    "a worker that sleeps": ("SELECT messages.arm(%s, NULL, '1 s')", "22023"),
    "a worker that starts": ("SELECT messages.register_worker(%s, 'h', 1, '1', ARRAY['t'], 1)", "22023"),
}


@pytest.mark.every_server
@pytest.mark.parametrize("where", STATEMENTS)
def test_sql_refuses_spoofed_names_and_accepts_visible_characters(queue: Queue, where: str) -> None:
    statement, state = STATEMENTS[where]

    assert {name: refused(queue, statement, name) for name in SPOOFED} == dict.fromkeys(SPOOFED, state)
    # The name of a job may have fewer characters.
    ordinary = ORDINARY if where != "a job" else []
    assert {name: refused(queue, statement, name) for name in ordinary} == dict.fromkeys(ordinary)


@BY_NAME
def test_python_and_spark_refuse_it(queue: Queue, name: str) -> None:
    with pytest.raises(InvalidMessage, match="1 to 200 printable characters"):
        to_columns(NewMessage(topic="t", key=name))
    with pytest.raises(InvalidMessage, match="1 to 200 printable characters"):
        publish_many(queue.conn, [NewMessage(topic="t", channel=name)])
    with pytest.raises(ConfigProblems, match="printable characters"):
        config.load(None, {}, {"worker": {"name": name}})
    assert not pc.match_substring_regex(pa.array([name]), check.LABEL)[0].as_py()


@pytest.fixture(scope="module")
def http(shared: Database) -> Iterator[httpx.Client]:
    site = Site(shared)
    with site.client() as client:
        yield client
    site.stop()


def test_http_refuses_them(http: httpx.Client) -> None:
    for name in SPOOFED:
        published = http.post("/v1/messages", json={"topic": "t", "payload": 1, "key": name})
        claimed = http.post("/v1/claim", json={"topics": ["t"], "worker": name})

        assert [code(each) for each in (published, claimed)] == ["invalid_request", "invalid_request"], name
        assert "printable characters" in published.text or "pattern" in published.text


# PostgreSQL can store these characters: which are printable, and are all others replaced?
ASKED = """
    SELECT array_agg(c.n) FILTER (WHERE c.is_printable) AS printable,
           bool_and(c.replaced = CASE WHEN c.is_printable THEN chr(c.n) ELSE '?' END) AS others_are_replaced
    FROM (SELECT n, messages.is_printable(chr(n)), messages.replace_unprintable(chr(n)) AS replaced
          FROM generate_series(1, 1114111) AS n WHERE n NOT BETWEEN 55296 AND 57343 OFFSET 0) AS c
"""
DOMAIN = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'message_key_is_short_and_printable'"


def test_python_sql_and_spark_agree_on_the_characters(queue: Queue) -> None:
    """One by one, all that PostgreSQL can store."""
    text = [chr(point) for point in range(1, 0x110000) if not 0xD800 <= point <= 0xDFFF]
    found = queue.row(ASKED)
    by_sql = set(map(chr, found.printable))
    # One literal over several lines, written E'...', where each backslash is two.
    body = queue.value("SELECT p.prosrc FROM pg_proc AS p WHERE p.proname = 'is_printable'")
    pattern = "".join(body.split("'")[1::2]).replace(r"\\", "\\")
    by_spark = pc.match_substring_regex(pa.array(text), check.LABEL).to_pylist()
    category = {each: unicodedata.category(each) for each in text}

    assert by_sql == {each for each in text if LABEL.fullmatch(each)}
    assert by_sql == {each for each, is_printable in zip(text, by_spark, strict=True) if is_printable}
    assert f"'{pattern}'" in queue.value(DOMAIN)
    visible = {each for each in text if category[each][0] in "LNPSZ"} - set("\u115f\u1160\u3164\uffa0\u2028\u2029")
    assert visible <= by_sql
    assert {each for each in by_sql if category[each] in ("Cc", "Cf", "Zl", "Zp")} == set()
    assert found.others_are_replaced


def test_a_refused_name_is_reported_with_the_character() -> None:
    with pytest.raises(ValueError, match=r"character 2 is U\+202E"):
        printable("a\u202eb")


RULES = {"channel_name": "message_channel_is_short_and_printable", "key_name": "message_key_is_short_and_printable"}


@pytest.fixture
def before(db: psycopg.Connection[Any]) -> Queue:
    """A queue with messages from before names were checked: the check must not make them impossible to settle."""
    for domain, rule in RULES.items():
        db.execute(f"ALTER DOMAIN messages.{domain} DROP CONSTRAINT {rule}".encode())
    return Queue(db)


def refuse_names_from_now_on(queue: Queue) -> None:
    """As a migration would: existing rows stay."""
    for domain, rule in RULES.items():
        queue.conn.execute(
            f"ALTER DOMAIN messages.{domain} ADD CONSTRAINT {rule} CHECK "
            "(messages.is_printable(VALUE)) NOT VALID".encode()
        )


@pytest.mark.parametrize("how", ["release", "defer", "retry", "complete"])
def test_an_older_message_with_its_key_ends_each_way_together_with_others(before: Queue, how: str) -> None:
    before.policy("t", max_attempts=0)
    strange, other = before.publish("t", key="a\u202eb"), before.publish("t", key="c")

    refuse_names_from_now_on(before)
    errors = [["no", "no"]] if how == "retry" else []
    lost = before.settle(how, before.claim("t"), *errors)

    assert lost == []
    left = [] if how == "complete" else [(strange, "a\u202eb", None), (other, "c", None)]
    assert before.rows("SELECT id, key::text, claim_id FROM messages.message ORDER BY id") == left


def test_older_dead_messages_are_redriven_together_with_others(before: Queue) -> None:
    dead = [before.publish("t", key=key, channel=channel) for key, channel in (("a\u202eb", "a\u202eb"), ("c", "c"))]
    before.settle("reject", before.claim("t"), ["no", "no"])

    refuse_names_from_now_on(before)
    redriven = before.rows("SELECT * FROM messages.redrive(%s)", [dead])

    assert [each.outcome for each in redriven] == ["keyless", "redriven"]
    assert before.rows("SELECT key::text, channel::text FROM messages.message ORDER BY id") == [
        (None, "a?b"),
        ("c", "c"),
    ]


def test_an_older_success_is_replayed(before: Queue) -> None:
    before.policy("t", archive_success="full")
    before.publish("t", channel="a\u202eb")
    before.settle("complete", before.claim("t"))

    refuse_names_from_now_on(before)
    since = "now() - interval '1 hour', now() + interval '1 hour'"
    replayed = before.rows(f"SELECT * FROM messages.replay('t', {since})")

    assert [each.outcome for each in replayed] == ["replayed"]
    assert before.value("SELECT channel FROM messages.message") == "a?b"
