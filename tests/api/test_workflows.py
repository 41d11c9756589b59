"""Workflows over HTTP."""

from __future__ import annotations

import httpx

from tests.api.site import code
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
