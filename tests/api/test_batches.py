"""Batches over HTTP."""

from __future__ import annotations

import httpx

from tests.api.site import code
from tests.sql.queue import Queue

COUNTS = ("total", "live", "succeeded", "dead", "cancelled")


def counts(http: httpx.Client, batch: int) -> tuple[int, ...]:
    found = http.get(f"/v1/batches/{batch}").json()
    return tuple(found[name] for name in COUNTS)


def test_a_batch_is_created_filled_closed_and_finished(http: httpx.Client, queue: Queue) -> None:
    created = http.post("/v1/batches", json={"name": "b", "on_finish": "b.finished", "metadata": {"file": "a.csv"}})
    batch = created.json()["id"]
    one = {"topic": "b.one", "payload": 1, "batch": batch}

    http.post("/v1/messages", json=one)
    http.post("/v1/messages/batch", json={"messages": [one, one, {"topic": "b.one", "payload": 2}]})
    http.post("/v1/messages", json=one | {"key": "k", "on_conflict": "replace"})
    filled = counts(http, batch)
    closed = http.post(f"/v1/batches/{batch}/close").json()
    queue.settle("complete", queue.claim("b.one"))
    finished = http.get(f"/v1/batches/{batch}").json()

    assert (created.status_code, created.headers["Location"]) == (201, f"/v1/batches/{batch}")
    assert filled == (4, 4, 0, 0, 0)
    assert (closed["state"], finished["state"]) == ("closed", "finished")
    assert finished["metadata"] == {"file": "a.csv"}
    (told,) = queue.claim("b.finished")
    assert finished["callbacks"] == {"finish": {"topic": "b.finished", "message": told.id}}


def test_a_closed_batch_refuses_its_message_and_no_other(http: httpx.Client) -> None:
    batch = http.post("/v1/batches", json={}).json()["id"]
    http.post(f"/v1/batches/{batch}/close")

    refused = http.post("/v1/messages", json={"topic": "b.closed", "payload": 1, "batch": batch})

    assert (refused.status_code, code(refused)) == (409, "batch_closed")
    assert f"batch {batch} was finished" in refused.json()["detail"]
    assert http.post("/v1/messages", json={"topic": "b.closed", "payload": 1}).status_code == 201


def test_a_batch_is_cancelled_and_its_dead_messages_are_redriven(http: httpx.Client, queue: Queue) -> None:
    batch = http.post("/v1/batches", json={"name": "c"}).json()["id"]
    queue.publish_many(3, "b.dead", batch_id=batch)
    queue.settle("fail", [queue.claim_one("b.dead")], ["boom"])

    redriven = http.post(f"/v1/batches/{batch}/redrive", json={}).json()["outcomes"]
    again = counts(http, batch)
    cancelled = [http.post(f"/v1/batches/{batch}/cancel", json={"limit": 2}).json()["cancelled"] for _ in range(3)]

    listed = http.get("/v1/messages", params={"batch": batch}).json()["messages"]
    assert [each["state"] for each in listed] == ["cancelled", "cancelled", "cancelled", "failed"]
    assert [each["outcome"] for each in redriven] == ["redriven"]
    assert again == (3, 3, 0, 0, 0)
    assert cancelled == [2, 1, 0]
    assert counts(http, batch) == (3, 0, 0, 0, 3)
    assert http.get(f"/v1/messages/{redriven[0]['message_id']}").json()["batch_id"] == batch


def test_batches_are_listed_page_by_page_and_by_state(http: httpx.Client) -> None:
    ids = [http.post("/v1/batches", json={"name": f"l{n}"}).json()["id"] for n in range(5)]
    http.post(f"/v1/batches/{ids[0]}/close")

    first = http.get("/v1/batches", params={"state": "open", "limit": 3}).json()
    second = http.get("/v1/batches", params={"state": "open", "limit": 3, "cursor": first["next"]}).json()

    assert [row["id"] for row in first["batches"]] == ids[:1:-1]
    assert [row["id"] for row in second["batches"]][:1] == [ids[1]]
    assert ids[0] not in [row["id"] for row in second["batches"]]
    assert http.get("/v1/batches/999999").status_code == 404
