"""Conditions, alerts, silences and sinks, and who sees tokens and exports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.api.site import Site, code
from tests.sql.queue import Queue
from tests.sql.sinks import Sink, raise_alert

FLEET = ("/v1/sinks", "/v1/tokens", "/v1/exports")


@pytest.fixture(scope="module")
def shop(site: Site) -> Iterator[httpx.Client]:
    """An operator of some topics."""
    with site.client(site.token("operator", topics=("shop.*",), name="shop")) as client:
        yield client


@pytest.fixture(scope="module")
def alerted(queue: Queue) -> Queue:
    """The queue with a condition and an alert of two topics, with a sink that fails, and with an export."""
    for topic in ("shop.orders", "other"):
        queue.conn.execute(
            "INSERT INTO messages.condition (kind, topic, since, what, fix) VALUES ('backlog', %s, now(), 'w', 'f')",
            [topic],
        )
        raise_alert(queue, topic=topic)
    sink = Sink(queue, "ops", holder="host-1:7")
    sink.settle(sink.next(), error="HTTP 503")
    queue.row("SELECT * FROM messages.open_export('lake', '/lake', '1')")
    return queue


def test_conditions_and_alerts_are_those_of_the_token(http: httpx.Client, shop: httpx.Client, alerted: Queue) -> None:
    def topics(client: httpx.Client, path: str) -> set[str]:
        return {row["topic"] for row in client.get(f"/v1/{path}").json()[path]} - {None}

    for path in ("conditions", "alerts", "incidents"):
        assert topics(http, path) == {"shop.orders", "other"}
        assert topics(shop, path) == {"shop.orders"}
    assert http.get("/v1/alerts?sink=none").json() == {"alerts": []}
    assert {(row["sink"], row["state"], row["count"]) for row in http.get("/v1/alerts").json()["alerts"]} == {
        ("ops", "firing", 1)
    }


def test_a_silence_holds_an_alert_back_until_it_ends_and_the_audit_names_who_did_it(
    http: httpx.Client, alerted: Queue
) -> None:
    asked = {"topic": "other", "ends_in": "2h", "reason": "the relay is down"}
    added = http.post("/v1/silences", json=asked)
    silence = added.json()

    assert added.status_code == 201
    assert (silence["topic"], silence["reason"], silence["created_by"]) == ("other", "the relay is down", "root")
    assert silence in http.get("/v1/silences").json()["silences"]
    assert "silenced" in {row["state"] for row in http.get("/v1/alerts").json()["alerts"]}
    assert "other" not in {row["topic"] for row in http.get("/v1/conditions").json()["conditions"]}
    path = f"/v1/silences/{silence['id']}"
    assert [http.delete(path).json() for _ in range(2)] == [{"ended": True}, {"ended": False}]
    actions = [(each["action"], each["actor"]) for each in http.get("/v1/audit?topic=other").json()["entries"]]
    assert actions == [("alert.unsilence", "root"), ("alert.silence", "root")]


def test_a_silence_of_topics_of_others_is_neither_added_nor_ended_nor_listed(
    http: httpx.Client, shop: httpx.Client
) -> None:
    other = http.post("/v1/silences", json={"kind": "backlog", "ends_in": 60}).json()["id"]
    own = shop.post("/v1/silences", json={"topic": "shop.orders", "ends_in": 60}).json()["id"]

    for topic in ("other", "shop.*", None):
        assert code(shop.post("/v1/silences", json={"kind": "k", "topic": topic, "ends_in": 60})) == "forbidden"
    assert code(shop.delete(f"/v1/silences/{other}")) == "forbidden"
    assert [row["id"] for row in shop.get("/v1/silences").json()["silences"]] == [own]
    assert shop.delete(f"/v1/silences/{own}").json() == {"ended": True}
    http.delete(f"/v1/silences/{other}")


def test_sinks_tokens_and_exports_are_listed_without_secrets_to_those_who_see_all_topics(
    site: Site, http: httpx.Client, shop: httpx.Client, alerted: Queue
) -> None:
    secret = site.token("viewer", name="secret-holder")
    with site.client(secret) as viewer:
        sinks, tokens, exports = (viewer.get(path).json() for path in FLEET)

    assert [(row["name"], row["last_error"], row["waiting"] > 0) for row in sinks["sinks"]] == [
        ("ops", "HTTP 503", True)
    ]
    assert {"name", "roles", "state"} <= next(row for row in tokens["tokens"] if row["name"] == "secret-holder").keys()
    digests = alerted.rows("SELECT encode(digest, 'hex') AS hex FROM messages.token")
    assert [each for each in (secret, *(row.hex for row in digests)) if each in json.dumps(tokens)] == []
    assert [(row["name"], row["lake"]) for row in exports["exports"]] == [("lake", "/lake")]
    assert [code(shop.get(path)) for path in FLEET] == ["forbidden"] * 3


@pytest.mark.parametrize(
    ("method", "path", "answer", "action"),
    [
        ("POST", "/v1/alerts/replay", {"replayed": 0}, None),
        ("DELETE", "/v1/sinks/old", {"removed": "old"}, "alert.delete_sink"),
        ("DELETE", "/v1/exports/old", {"removed": "old"}, "delete_export"),
        ("POST", "/v1/tokens/old/revoke", {"was_good": True}, "revoke_token"),
    ],
)
def test_what_concerns_the_fleet_is_changed_by_operators_of_all_topics(
    site: Site, http: httpx.Client, shop: httpx.Client, queue: Queue, method: str, path: str, answer: Any, action: str
) -> None:
    Sink(queue, "old").next()
    queue.row("SELECT * FROM messages.open_export('old', '/old', '1')")
    if "tokens" in path:
        site.token("viewer", name="old")
    body = {"json": {}} if path.endswith("replay") else {}

    assert code(shop.request(method, path, **body)) == "forbidden"
    assert http.request(method, path, **body).json() == answer
    if action is not None:
        (entry,) = http.get("/v1/audit", params={"action": action}).json()["entries"]
        assert (entry["actor"], entry["target"]) == ("root", "old")
