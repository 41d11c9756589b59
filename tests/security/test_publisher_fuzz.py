"""Any input of a publisher over SQL is refused with a documented SQLSTATE, or its message ends with a reason.

All other messages continue.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.server.postgres import Database, Postgres
from tests.sql.queue import Queue

# The documented errors of a refused publish: outside of a bound, or no JSON that the server can store.
DOCUMENTED = ("23514", "22P02", "22P05", "22021", "22003", "54000", "54001", "PGR05")
PROTOCOL = Path(__file__).parents[2] / "docs" / "reference" / "protocol.md"
MOST_OF_ONE = 16 * 1024 * 1024 + 65536
INSERT = """
    INSERT INTO messages.message (topic, channel, key, payload, headers)
    SELECT %(topic)s, %(channel)s, %(key)s, p, h FROM (SELECT ({payload})::jsonb AS p, ({headers})::jsonb AS h) AS given
"""
# The same from a table, where it is compressed.
STAGED = "CREATE TEMPORARY TABLE staged ON COMMIT DROP AS SELECT ({payload})::jsonb AS p, ({headers})::jsonb AS h"
COPIED = """
    INSERT INTO messages.message (topic, channel, key, payload, headers)
    SELECT %(topic)s, %(channel)s, %(key)s, p, h FROM staged
"""

# Letters, marks, numbers, symbols, spaces, controls, formats, private ones, unassigned ones; except surrogates, which
# no UTF-8 has.
CHARACTERS = st.characters(exclude_categories=["Cs"])
NAMES = st.one_of(st.none(), st.text(CHARACTERS, max_size=20), st.text(CHARACTERS, min_size=190, max_size=210))
TOPICS = st.one_of(
    st.just("fuzz"),
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True),
    st.text(CHARACTERS, max_size=20),
)
EXPONENTS = st.one_of(st.integers(-20, 20), st.integers(-400, 400), st.integers(-16390, 131080))
NUMBERS = st.one_of(
    st.integers().map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.builds("{}e{}".format, st.sampled_from(["1", "-1", "0", "9.99", "1.000", "-0.0"]), EXPONENTS),
    st.integers(1, 5000).map(lambda digits: "9" * digits),
    st.integers(1, 5000).map(lambda digits: "0." + "0" * digits + "1"),
)
TEXTS = st.one_of(
    st.text(CHARACTERS, max_size=30).map(json.dumps),
    st.sampled_from(
        [r'"\u0000"', r'"\ud800"', r'"\udc00\ud800"', r'"\u202e"', '"\\', "nul", "", "[", "NaN", "Infinity"]
    ),
)
LEAVES = st.one_of(st.sampled_from(["null", "true", "false"]), NUMBERS, TEXTS)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda each: f"[{','.join(each)}]"),
        st.dictionaries(st.text(CHARACTERS, max_size=8), inner, max_size=4).map(
            lambda each: "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in each.items()) + "}"
        ),
    ),
    max_leaves=8,
)


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, list[Any]]:
    """Draw JSON as an SQL expression with its values: as it is, repeated, deep, or long."""
    text = draw(JSON)
    match draw(st.sampled_from(["plain", "plain", "many", "deep", "long", "escaped"])):
        case "many":
            return "SELECT jsonb_agg(%s::jsonb) FROM generate_series(1, %s)", [
                text,
                draw(st.sampled_from([10, 200, 3000])),
            ]
        case "deep":
            depth = draw(st.sampled_from([50, 900, 1100, 5000, 100_000]))
            return "repeat('[', %s) || %s || repeat(']', %s)", [depth, text, depth]
        case "long":
            return "to_jsonb(repeat(%s, %s))", [
                draw(st.text(CHARACTERS, min_size=1, max_size=3)),
                draw(st.sampled_from([10, 70_000, 5_700_000])),
            ]
        case "escaped":
            return "to_jsonb(repeat(%s, %s))", [
                draw(st.sampled_from(["\x01", '"', "\\", "\x1f"])),
                draw(st.sampled_from([10, 20_000, 3_000_000])),
            ]
        case _:
            return "%s", [text]


@pytest.fixture(scope="module")
def fuzzed(server: Postgres) -> Iterator[Database]:
    """A database for all that is drawn."""
    with server.new_database(template=server.migrated) as database:
        yield database


def publish(
    conn: psycopg.Connection[Any], payload: Any, headers: Any, *, compressed: bool, **names: str | None
) -> str | None:
    """Publish as a role that may do nothing else; return the SQLSTATE with which it is refused."""
    statements = [STAGED, COPIED] if compressed else [INSERT]
    try:
        with conn.transaction():
            conn.execute("SET LOCAL ROLE messages_publisher")
            for statement in statements:
                _run(conn, statement, payload, headers, names)
    except psycopg.Error as error:
        # A NUL never leaves the driver.
        return error.sqlstate or ("22021" if isinstance(error, psycopg.DataError) else "?")
    return None


def _run(
    conn: psycopg.Connection[Any], statement: str, payload: Any, headers: Any, names: dict[str, str | None]
) -> None:
    values: dict[str, Any] = dict(names)
    written = {}
    for name, (expression, given_values) in {"payload": payload, "headers": headers}.items():
        for number, value in enumerate(given_values):
            values[f"{name}{number}"] = value
            expression = expression.replace("%s", f"%({name}{number})s", 1)  # noqa: PLW2901
        written[name] = f"({expression})" if expression.startswith("SELECT") else expression
    conn.execute(statement.format(**written).encode(), values)


BOMBS = [
    ("SELECT jsonb_agg(%s::jsonb) FROM generate_series(1, %s)", ["1e131071", 9000]),
    ("SELECT jsonb_agg(%s::jsonb) FROM generate_series(1, %s)", ["1e131071", 100]),
    ("SELECT jsonb_agg(%s::jsonb) FROM generate_series(1, %s)", ["0e-16383", 20000]),
    ("to_jsonb(repeat(%s, %s))", ["a", 17_000_000]),
]
NOTHING = ("%s", [None])


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    payload=documents(),
    headers=st.one_of(st.just(NOTHING), documents(), st.just(("jsonb_build_object('a', %s::jsonb)", ["1e65000"]))),
    topic=TOPICS,
    channel=NAMES,
    key=NAMES,
    compressed=st.booleans(),
)
@example(payload=BOMBS[0], headers=NOTHING, topic="fuzz", channel=None, key=None, compressed=False)
@example(payload=BOMBS[0], headers=NOTHING, topic="fuzz", channel=None, key=None, compressed=True)
@example(payload=BOMBS[1], headers=NOTHING, topic="fuzz", channel="c", key=None, compressed=True)
@example(payload=BOMBS[2], headers=NOTHING, topic="fuzz", channel=None, key="k", compressed=True)
@example(payload=BOMBS[3], headers=NOTHING, topic="fuzz", channel=None, key=None, compressed=True)
def test_every_input_is_refused_or_claimed_and_the_others_continue(
    fuzzed: Database, payload: Any, headers: Any, topic: str, channel: str | None, key: str | None, compressed: bool
) -> None:
    with fuzzed.connect() as conn:
        queue = Queue(conn)
        conn.execute("TRUNCATE messages.message, messages.message_archive CASCADE")

        refused = publish(conn, payload, headers, compressed=compressed, topic=topic, channel=channel, key=key)
        others = [*queue.publish_many(2, "fuzz"), *queue.publish_many(2, "other")]

        assert refused is None or refused in DOCUMENTED
        topics = ["fuzz", "other"] if refused or topic == "fuzz" else ["fuzz", "other", topic]
        claimed = []
        while more := queue.rows("SELECT * FROM messages.claim('w', %s, 10)", [topics]):
            claimed += more
        assert {each.id for each in claimed} >= set(others)
        assert len(claimed) == len(others) + (refused is None)
        for each in claimed:
            assert len(each.payload.encode()) + len((each.headers or "").encode()) <= MOST_OF_ONE
            _decode(each.payload)
        assert (
            queue.value(
                "SELECT cardinality(messages.complete(%s, %s))",
                [[each.id for each in claimed], [each.claim_id for each in claimed]],
            )
            == 0
        )
        assert queue.value("SELECT count(*) FROM messages.message") == 0


def _decode(text: str) -> None:
    """As a worker does, which rejects what its language cannot represent: nothing worse happens."""
    with suppress(ValueError, RecursionError):
        json.loads(text)


def test_the_protocol_documents_all_of_these_errors() -> None:
    publishing = PROTOCOL.read_text().split("\n## Publishing\n")[1].split("\n## ")[0]

    assert [state for state in DOCUMENTED if state not in publishing] == []
