"""Workflows over HTTP."""

from __future__ import annotations

import httpx

from tests.api.site import Site, code
from tests.sql.queue import Queue


def test_workflows_are_listed_by_state_and_shown_by_any_of_their_messages(http: httpx.Client, queue: Queue) -> None:
    one, other = queue.publish("w.first"), queue.publish("w.other")
    second = queue.send(topic="w.second", after=[one]).id
    queue.send(topic="w.second", after=[other])
    queue.settle("fail", queue.claim("w.first"), ["boom"])

    held = http.get("/v1/workflows", params={"state": "held", "limit": 2}).json()
    newest = http.get("/v1/workflows", params={"limit": 1}).json()
    older = http.get("/v1/workflows", params={"limit": 1, "cursor": newest["next"]}).json()
    shown = http.get(f"/v1/workflows/{second}").json()

    assert [each["id"] for each in held["workflows"]] == [one]
    assert [each["id"] for page in (newest, older) for each in page["workflows"]] == [other, one]
    messages = shown.pop("messages")
    assert shown == held["workflows"][0]
    assert [(each["id"], each["after"], each["state"]) for each in messages] == [
        (one, [], "failed"),
        (second, [one], "blocked"),
    ]


def test_a_message_without_a_workflow_has_none(http: httpx.Client, queue: Queue) -> None:
    answer = http.get(f"/v1/workflows/{queue.publish('w.alone')}")

    assert (answer.status_code, code(answer)) == (404, "not_found")


def test_its_dead_messages_are_redriven_and_the_rest_is_cancelled_at_once(http: httpx.Client, queue: Queue) -> None:
    one = queue.publish("w.first")
    second = queue.send(topic="w.second", after=[one]).id
    last = queue.send(topic="w.last", after=[second], after_failed="run").id
    queue.settle("fail", queue.claim("w.first"), ["boom"])

    (redriven,) = http.post(f"/v1/workflows/{last}/redrive", json={"delay": "1h"}).json()["outcomes"]
    back = queue.message(redriven["message_id"])
    cancelled = http.post(f"/v1/workflows/{last}/cancel", json={"reason": "withdrawn"})
    again = http.post(f"/v1/workflows/{last}/cancel", json={})

    assert (redriven["archived_id"], redriven["outcome"], back.topic) == (one, "redriven", "w.first")
    assert back.available_at > back.created_at
    assert (cancelled.json(), again.json()) == ({"cancelled": 3}, {"cancelled": 0})
    assert {queue.archived(each).result for each in (back.id, second, last)} == {"cancelled"}
    assert queue.archived(last).error == "cancelled: withdrawn"


def test_only_what_is_of_the_workflow_and_of_the_topics_of_the_token_is_changed(site: Site, queue: Queue) -> None:
    one = queue.publish("shop.first")
    hidden = queue.send(topic="secret", after=[one]).id
    alien = queue.send(topic="shop.alien", after=[queue.publish("shop.alien")]).id
    second = queue.send(topic="shop.second", after=[hidden, alien]).id
    secret = queue.send(topic="secret", after=[queue.publish("secret")]).id
    with site.client(site.token("operator", topics=["shop.*"])) as client:
        cancelled = client.post(f"/v1/workflows/{second}/cancel", json={}).json()
        unseen = [client.post(f"/v1/workflows/{secret}/{act}", json={}) for act in ("cancel", "redrive")]

    assert cancelled == {"cancelled": 2}
    assert {queue.archived(each).result for each in (one, second)} == {"cancelled"}
    assert [(each.status_code, code(each)) for each in unseen] == [(404, "not_found")] * 2
    assert all(map(queue.message, (hidden, alien, secret)))
