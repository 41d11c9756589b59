"""Operations over HTTP: messages, dead messages, topics, channels, schedules, workers, maintenance, the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from pgrouse.client.queries.alert import THRESHOLDS
from tests.api.site import Site, code
from tests.sql.queue import Queue


def pages(http: httpx.Client, path: str, name: str, **params: Any) -> Iterator[list[dict[str, Any]]]:
    """Read a list page by page."""
    cursor = None
    while True:
        found = http.get(path, params={**params, **({"cursor": cursor} if cursor else {})}).json()
        yield found[name]
        if (cursor := found["next"]) is None:
            return


def die(queue: Queue, topic: str, error: str = "boom") -> int:
    published = queue.publish(topic)
    queue.settle("fail", queue.claim(topic), [error])
    return published


def test_messages_are_listed_page_by_page_and_each_once(http: httpx.Client, queue: Queue) -> None:
    published = queue.publish_many(25, "o.pages")

    found = [row["id"] for page in pages(http, "/v1/messages", "messages", topic="o.pages", limit=7) for row in page]

    assert sorted(found) == published
    assert len(set(found)) == len(found)


def test_messages_are_found_by_filters(http: httpx.Client, queue: Queue) -> None:
    ready = queue.publish("o.find", key="k", payload={"customer": 7})
    queue.publish("o.find", channel="c")
    dead = die(queue, "o.find.dead")

    def ids(**params: Any) -> list[int]:
        return [row["id"] for row in http.get("/v1/messages", params=params).json()["messages"]]

    assert ids(topic="o.find", key="k") == [ready]
    assert ready not in ids(topic="o.find", channel="c")
    assert ids(topic="o.find.dead", state=["failed"]) == [dead]
    assert ids(topic="o.find", path="$.customer ? (@ == 7)") == [ready]


def test_an_invalid_jsonpath_is_refused(http: httpx.Client, queue: Queue) -> None:
    queue.publish("o.path", payload={"a": "b"})

    for path in ("$.[", '$.a ? (@ like_regex "(")', '$.a.datetime("x")', "x", "$" * 400):
        answer = http.get("/v1/messages", params={"topic": "o.path", "path": path})
        assert answer.status_code in (200, 422), answer.text


def test_a_live_or_archived_message_is_shown_and_explained(http: httpx.Client, queue: Queue) -> None:
    live, dead = queue.publish("o.show", payload={"n": 1.50}), die(queue, "o.show.dead")

    shown = http.get(f"/v1/messages/{live}").json()
    assert (shown["state"], shown["payload"]) == ("ready", {"n": 1.5})
    assert http.get(f"/v1/messages/{dead}").json()["state"] == "failed"
    assert http.get(f"/v1/messages/{live}/explain").json()["reasons"][0]["code"]
    assert code(http.get("/v1/messages/999999999")) == "not_found"


def test_the_log_lines_of_a_message_are_shown(http: httpx.Client, queue: Queue) -> None:
    message = queue.publish("o.logs")
    (claimed,) = queue.claim("o.logs")
    queue.call("save_logs", [claimed.id], [claimed.claim_id], ["it said <so>"], [3])

    (logged,) = http.get(f"/v1/messages/{message}/logs").json()["logs"]

    assert (logged["attempt"], logged["lines"], logged["left_out"]) == (1, "it said <so>", 3)
    assert code(http.get("/v1/messages/999999999/logs")) == "not_found"


def test_json_that_python_cannot_hold_is_returned_unchanged(http: httpx.Client, queue: Queue) -> None:
    digits = "9" * 5000
    published = queue.value(
        "INSERT INTO messages.message (topic, payload) VALUES ('o.digits', %s::jsonb) RETURNING id", [f"[{digits}]"]
    )

    assert digits in http.get(f"/v1/messages/{published}").text
    claimed = http.post("/v1/claim", json={"topics": ["o.digits"]})
    assert (claimed.status_code, digits in claimed.text) == (200, True)


def test_messages_are_cancelled_skipped_and_retried(http: httpx.Client, queue: Queue) -> None:
    one, two, three = queue.publish_many(3, "o.act")
    queue.row(
        "UPDATE messages.message SET available_at = available_at + interval '1 hour' WHERE id = %s RETURNING 1", [three]
    )

    def act(verb: str, *ids: int, **more: Any) -> Any:
        return http.post(f"/v1/messages/{verb}", json={"ids": ids, **more}).json()

    assert act("cancel", one, 10**12, reason="no") == {"done": [one], "unchanged": [10**12]}
    assert act("skip", two, reason="in the way") == {"done": [two], "unchanged": []}
    assert act("retry", three) == {"done": [three], "unchanged": []}
    assert (queue.archived(one).result, queue.archived(two).result) == ("cancelled", "failed")


def test_a_message_that_waits_for_another_is_unblocked(http: httpx.Client, queue: Queue) -> None:
    before = queue.publish("o.before")
    blocked = queue.send(topic="o.blocked", after=[before]).id

    answer = http.post("/v1/messages/unblock", json={"ids": [blocked, before]})

    assert answer.json() == {"done": [blocked], "unchanged": [before]}
    assert [each.id for each in queue.claim("o.blocked")] == [blocked]


def test_a_waiting_message_is_edited_and_a_running_one_is_not(http: httpx.Client, queue: Queue) -> None:
    published = queue.publish("o.edit", payload={"a": 1})

    edited = http.patch(f"/v1/messages/{published}", json={"payload": {"a": 2}})
    assert edited.json()["payload"] == {"a": 2}
    queue.claim("o.edit")

    assert code(http.patch(f"/v1/messages/{published}", json={"payload": {"a": 3}})) == "running"
    assert queue.message(published).payload == {"a": 2}


def test_dead_messages_are_listed_grouped_and_redriven_once(http: httpx.Client, queue: Queue) -> None:
    dead = [die(queue, "o.dead", f"boom {n}") for n in range(5)]

    listed = [row["id"] for page in pages(http, "/v1/dead", "messages", topic="o.dead", limit=2) for row in page]
    (group,) = http.get("/v1/dead/groups", params={"topic": "o.dead"}).json()["groups"]
    body = {"filter": {"topic": "o.dead", "fingerprint": group["error_fingerprint"]}}
    tried = http.post("/v1/dead/redrive", json={**body, "dry_run": True}).json()
    done = http.post("/v1/dead/redrive", json={**body, "rate": 2}).json()
    again = http.post("/v1/dead/redrive", json={"ids": dead}).json()

    assert listed == dead
    assert group["count"] == 5
    assert [(row["archived_id"], row["message_id"]) for row in tried["results"]] == [(each, None) for each in dead]
    assert {row["outcome"] for row in done["results"]} == {"redriven"}
    assert {row["outcome"] for row in again["results"]} == {"redriven_before"}
    assert (
        queue.value("SELECT max(available_at) - min(available_at) FROM messages.message WHERE topic = 'o.dead'").seconds
        >= 1
    )


def test_a_policy_is_read_and_changed_in_the_form_of_the_file(http: httpx.Client) -> None:
    changed = http.patch(
        "/v1/topics/o.policy", json={"max_attempts": 7, "lock_duration": "2m", "backoff": {"base": "3s"}}
    )

    shown = http.get("/v1/topics/o.policy").json()
    assert len(changed.json()["changes"]) == 3
    assert (shown["own"]["max_attempts"], shown["own"]["lock_duration"]) == (7, 120)
    assert shown["policy"]["archive_success"] == "full"
    assert http.patch("/v1/topics/o.policy", json={"max_attempts": "inherit"}).json()["changes"]
    assert "max_attempts" not in http.get("/v1/topics/o.policy").json()["own"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("max_attempt", 1), ("max_attempts", -1), ("lock_duration", "10d")),
        *(("payload_schema", "@/etc/passwd"), ("payload_schema", 1)),
    ],
)
def test_an_invalid_policy_is_refused_with_the_setting(http: httpx.Client, setting: str, value: Any) -> None:
    answer = http.patch("/v1/topics/o.wrong", json={setting: value})

    assert answer.status_code == 422
    assert setting in answer.json()["detail"]


def test_a_subscription_is_added_listed_and_removed(http: httpx.Client, queue: Queue) -> None:
    path = "/v1/topics/o.source/subscriptions"
    assert [http.post(path, json={"subscriber": "o.copies"}).json() for _ in range(2)] == [
        {"added": True},
        {"added": False},
    ]
    queue.publish("o.source")

    (listed,) = http.get("/v1/topics/o.copies/subscriptions").json()["subscriptions"]
    assert (listed["topic"], listed["subscriber"]) == ("o.source", "o.copies")
    assert len(queue.claim("o.copies")) == 1
    assert http.delete(f"{path}/o.copies").json() == {"removed": "o.copies"}
    assert http.delete(f"{path}/o.copies").status_code == 404
    assert http.get(path).json() == {"subscriptions": []}


def test_thresholds_are_set_and_read_with_the_defaults(http: httpx.Client) -> None:
    changed = http.patch("/v1/topics/o.late/thresholds", json={"backlog_age": "2h", "dead_per_hour": 7}).json()

    assert changed["own"] == {"backlog_age": 7200, "dead_per_hour": 7}
    assert changed["thresholds"].keys() == THRESHOLDS.keys()
    cleared = http.patch("/v1/topics/o.late/thresholds", json={"backlog_age": None}).json()
    assert cleared == http.get("/v1/topics/o.late/thresholds").json()
    assert cleared["own"] == {"dead_per_hour": 7}
    assert http.get("/v1/topics/*/thresholds").json()["own"]["backlog_age"] == 900


@pytest.mark.parametrize("body", [{"backlog": 1}, {"backlog_age": "soon"}, {"dead_per_hour": -1}, {"cron_age": "1m"}])
def test_a_threshold_that_cannot_be_is_refused(http: httpx.Client, body: dict[str, Any]) -> None:
    assert http.patch("/v1/topics/o.late/thresholds", json=body).status_code == 422


def test_a_topic_and_a_channel_are_paused_and_resumed(http: httpx.Client, queue: Queue) -> None:
    queue.publish("o.pause", channel="c/ä")
    assert http.post("/v1/topics/o.pause/pause", json={"reason": "relay down", "resume_in": "1h"}).json()["until"]
    assert queue.claim("o.pause") == []
    (topic,) = [each for each in http.get("/v1/topics").json()["topics"] if each["topic"] == "o.pause"]
    assert topic["paused"]
    assert http.get("/v1/topics/o.pause").json()["paused"]["paused_by"] == "root"
    assert http.post("/v1/topics/o.pause/resume").json() == {"was_paused": True}

    assert http.post("/v1/topics/o.pause/channels/pause", json={"channel": "c/ä"}).json()["paused"]
    assert queue.claim("o.pause") == []
    assert http.post("/v1/topics/o.pause/channels/resume", json={"channel": "c/ä"}).json() == {"was_paused": True}
    assert len(queue.claim("o.pause")) == 1


def test_a_channel_has_its_own_limits_and_its_first_message_can_be_skipped(http: httpx.Client, queue: Queue) -> None:
    first, _ = queue.publish_many(2, "o.channel", channel="c")

    change = {"channel": "c", "policy": {"concurrency": 1, "min_interval": "2s"}}
    assert len(http.patch("/v1/topics/o.channel/channels", json=change).json()["changes"]) == 2
    (listed,) = http.get("/v1/topics/o.channel/channels").json()["channels"]
    assert (listed["channel"], listed["concurrency"], listed["min_interval"]) == ("c", 1, 2)
    assert http.post("/v1/topics/o.channel/channels/skip", json={"channel": "c"}).json() == {"id": first}


def test_a_schedule_is_added_paused_run_and_removed(http: httpx.Client, queue: Queue) -> None:
    new = {"name": "o.nightly", "cron": "0 3 * * *", "topic": "o.cron", "payload": {"kind": "daily"}, "jitter": "1m"}

    added = http.post("/v1/schedules", json=new)
    assert (added.status_code, added.json()["next_tick"] is not None) == (201, True)
    assert added.json()["while_paused"] == "publish"
    assert http.post("/v1/schedules", json=new | {"while_paused": "wait"}).status_code == 422
    assert code(http.post("/v1/schedules", json=new)) == "already_there"
    assert http.post("/v1/schedules/o.nightly/pause", json={"reason": "holidays"}).json() == {"was_running": True}
    assert http.get("/v1/schedules/o.nightly").json()["paused_reason"] == "holidays"
    assert http.post("/v1/schedules/o.nightly/resume").json() == {"was_paused": True}
    ran = http.post("/v1/schedules/o.nightly/run").json()
    assert queue.message(ran["id"]).payload == {"kind": "daily"}
    (run,) = http.get("/v1/schedules/o.nightly/runs").json()["runs"]
    run_by = queue.value("SELECT run_by FROM messages.schedule_run")
    assert (run["message_id"], run["outcome"], run["run_by"]) == (ran["id"], "published", run_by)
    assert http.delete("/v1/schedules/o.nightly").json() == {"removed": "o.nightly"}
    assert http.get("/v1/schedules/o.nightly").status_code == 404


def test_what_is_given_of_a_schedule_is_changed_and_the_rest_stays(http: httpx.Client, queue: Queue) -> None:
    new = {"name": "o.changed", "cron": "0 3 * * *", "topic": "o", "payload": {"n": 1}, "key": "k"}
    new |= {"headers": {"a": "1"}}
    http.post("/v1/schedules", json=new)

    changes = {"cron": "@daily", "key": None, "missed_limit": 7, "while_paused": "skip"}
    changed = http.patch("/v1/schedules/o.changed", json=changes)

    expected = new | changes | {"state": "on", "declared_by": None}
    assert changed.status_code == 200
    assert expected.items() <= changed.json().items()
    assert http.patch("/v1/schedules/o.changed", json={"payload": None}).json()["payload"] is None
    assert http.patch("/v1/schedules/o.changed", json={"cron": None}).status_code == 422


def test_the_messages_of_a_schedule_have_settings_instead_of_their_topics(http: httpx.Client, queue: Queue) -> None:
    new = {"name": "o.own", "cron": "0 3 * * *", "topic": "o", "max_attempts": 3, "timeout": "30s", "retention": "90d"}

    added = http.post("/v1/schedules", json=new | {"backoff": "linear"}).json()
    changed = http.patch("/v1/schedules/o.own", json={"timeout": None, "backoff": {"kind": "none"}}).json()
    message = queue.message(http.post("/v1/schedules/o.own/run").json()["id"])

    assert (added["max_attempts"], added["timeout"], added["retention"]) == (3, 30, 90 * 86_400)
    assert added["backoff"]["kind"] == "linear"
    assert (changed["timeout"], changed["backoff"], changed["max_attempts"]) == (None, {"kind": "none"}, 3)
    assert (message.max_attempts, message.timeout, message.backoff) == (3, None, {"kind": "none"})
    for wrong in ({"timeout": 0}, {"retention": "1m"}, {"backoff": {"base": "1m"}}, {"max_attempts": -1}):
        assert http.patch("/v1/schedules/o.own", json=wrong).status_code == 422
    assert http.patch("/v1/schedules/o.unknown", json={"cron": "@daily"}).status_code == 404


def test_an_invalid_cron_expression_is_refused(http: httpx.Client) -> None:
    answer = http.post("/v1/schedules", json={"name": "o.bad", "cron": "99 * * * *", "topic": "t"})

    assert (answer.status_code, code(answer)) == (422, "invalid_value")


def test_workers_are_listed_and_requested_to_drain(http: httpx.Client, queue: Queue) -> None:
    queue.call("register_worker", "o.worker", "host", 1, "0", ["o.t"], 5)

    (worker,) = http.get("/v1/workers").json()["workers"]
    drained = http.post("/v1/workers/drain", json={"name": "o.worker"})

    assert (worker["name"], worker["state"]) == ("o.worker", "working")
    assert drained.json() == {"draining": "o.worker"}
    assert http.get("/v1/workers").json()["workers"][0]["state"] == "draining"
    assert code(http.post("/v1/workers/drain", json={"name": "no-worker"})) == "not_found"


def test_a_worker_shows_how_many_messages_of_a_topic_it_may_run(http: httpx.Client, queue: Queue) -> None:
    queue.call("register_worker", "o.worker", "host", 1, "0", ["o.t", "o.u"], 5)

    set_policy = http.patch("/v1/topics/o.t", json={"worker_concurrency": 2})

    assert set_policy.status_code == 200
    assert http.get("/v1/workers").json()["workers"][0]["topic_limits"] == {"o.t": 2}
    scaled = http.post("/v1/workers/scale", json={"name": "o.worker", "concurrency": 7, "topic": "o.t"})
    assert scaled.json() == {"name": "o.worker", "topic": "o.t", "concurrency": 7}
    assert http.get("/v1/workers").json()["workers"][0]["topic_limits"] == {"o.t": 7}
    refused = http.post("/v1/workers/scale", json={"name": "o.worker", "concurrency": 7, "topic": "o.u"})
    assert (refused.status_code, code(refused)) == (422, "invalid_value")


def test_a_worker_is_scaled_unless_it_works_over_http(http: httpx.Client, queue: Queue) -> None:
    queue.call("register_worker", "o.worker", "host", 1, "0", ["o.t"], 5)
    queue.call("touch_worker", "o.worker", '{"listener": "listening"}')
    queue.call("touch_http_worker", "http:o/w", "host", ["o.t"], 5)

    scaled = http.post("/v1/workers/scale", json={"name": "o.worker", "concurrency": 9})

    assert scaled.json() == {"name": "o.worker", "topic": None, "concurrency": 9}
    listed = {each["name"]: each for each in http.get("/v1/workers").json()["workers"]}
    assert (listed["o.worker"]["concurrency"], listed["o.worker"]["configured_concurrency"]) == (9, 5)
    http.post("/v1/workers/scale", json={"name": "o.worker", "concurrency": None})
    assert queue.value("SELECT requested_concurrency FROM messages.worker WHERE name = 'o.worker'") is None
    over_http = http.post("/v1/workers/scale", json={"name": "http:o/w", "concurrency": 9})
    assert (over_http.status_code, code(over_http)) == (422, "invalid_value")
    assert code(http.post("/v1/workers/scale", json={"name": "no-worker", "concurrency": 9})) == "not_found"


def test_the_maintenance_and_each_of_its_tasks_run_on_request(http: httpx.Client, queue: Queue) -> None:
    expired = queue.publish("o.reap")
    queue.row("UPDATE messages.message SET expires_at = clock_timestamp() WHERE id = %s RETURNING 1", [expired])

    assert http.post("/v1/reapers/expire_messages/run").json() == {"task": "expire_messages", "count": 1}
    assert http.post("/v1/reapers/purge/run").json()["task"] == "purge"
    assert {row["task"] for row in http.post("/v1/maintenance/run").json()["tasks"]} >= {"expire_locks", "prune"}
    assert queue.archived(expired).result == "expired"
    entries = http.get("/v1/audit", params={"limit": 3}).json()["entries"]
    assert {row["actor"] for row in entries} == {"root"}
    assert [row["action"] for row in entries] == ["tick", "purge", "expire_messages"]
    assert entries[2]["detail"] == {"count": 1}


def test_actions_are_recorded_in_the_audit_log_with_their_actor(http: httpx.Client, queue: Queue) -> None:
    http.post("/v1/messages/cancel", json={"ids": [queue.publish("o.audit")], "reason": "why not"})

    (entry,) = http.get("/v1/audit", params={"topic": "o.audit"}).json()["entries"]
    assert (entry["actor"], entry["action"]) == ("root", "cancel")
    listed = [row["id"] for page in pages(http, "/v1/audit", "entries", limit=3) for row in page]
    assert listed == sorted(set(listed), reverse=True)


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/dead", "/v1/topics", "/v1/schedules", "/v1/audit"])
def test_an_invented_cursor_is_refused(http: httpx.Client, path: str) -> None:
    for cursor in ("xx", "W10", "WyJhdWRpdCIsIngiXQ", "WyJtZXNzYWdlcyIsImEiXQ", "WyJ0b3BpY3MiLDFd"):
        assert http.get(path, params={"cursor": cursor}).status_code == 422


def test_null_restores_the_default(http: httpx.Client, queue: Queue) -> None:
    http.patch("/v1/topics/o.null", json={"max_attempts": 7, "ordered": True}).raise_for_status()
    http.patch("/v1/topics/o.null/channels", json={"channel": "c", "policy": {"concurrency": 3}}).raise_for_status()

    changed = http.patch("/v1/topics/o.null", json={"max_attempts": None}).json()["changes"]
    of_channel = http.patch("/v1/topics/o.null/channels", json={"channel": "c", "policy": {"concurrency": None}})

    assert (len(changed), http.get("/v1/topics/o.null").json()["own"]) == (1, {"ordered": True})
    assert of_channel.status_code == 200, of_channel.text
    assert queue.rows("SELECT FROM messages.channel WHERE topic = 'o.null' AND concurrency IS NOT NULL") == []


def test_the_policy_of_a_topic_is_removed(http: httpx.Client, queue: Queue) -> None:
    http.patch("/v1/topics/o.gone", json={"max_attempts": 7}).raise_for_status()
    published = queue.publish("o.gone")

    answers = [http.delete("/v1/topics/o.gone") for _ in range(2)]
    defaults = http.delete("/v1/topics/*")

    assert [answer.status_code for answer in answers] == [200, 404]
    assert defaults.status_code in (404, 422)
    assert http.get("/v1/topics/o.gone").json()["own"] == {}
    assert queue.message(published) is not None
    assert queue.value("SELECT actor FROM messages.audit ORDER BY id DESC LIMIT 1") == "root"


def test_dead_letters_are_redriven_once(http: httpx.Client, queue: Queue) -> None:
    queue.policy("o.copied", dead_letter=True)
    died = die(queue, "o.copied")
    copy = queue.value("SELECT id FROM messages.message WHERE topic = 'o.copied.dlq'")

    first, again = (http.post("/v1/dead/requeue", json={"ids": [copy, 2**62]}).json()["results"] for _ in range(2))

    (back,) = [each for each in first if each["copy_id"] == copy]
    assert (back["archived_id"], back["outcome"]) == (died, "redriven")
    assert queue.message(back["message_id"]).topic == "o.copied"
    assert {each["outcome"] for each in again} == {"not_waiting"}
    assert len(first) == len(again) == 2


def test_dead_letters_of_other_topics_are_not_moved(site: Site, queue: Queue) -> None:
    queue.policy("o.foreign", dead_letter=True)
    die(queue, "o.foreign")
    copy = queue.value("SELECT id FROM messages.message WHERE topic = 'o.foreign.dlq'")

    for topics in (("other*",), ("o.foreign.dlq",), ("o.foreign",)):
        with site.client(site.token("operator", topics=topics)) as client:
            (result,) = client.post("/v1/dead/requeue", json={"ids": [copy]}).json()["results"]
            assert result["outcome"] == "not_waiting"
    assert queue.message(copy) is not None


def test_a_disallowed_method_is_answered_with_the_allowed_ones(http: httpx.Client) -> None:
    expected = {"messages": "GET, HEAD, POST", "messages/7": "GET, HEAD, PATCH"}
    expected |= {"topics/t": "DELETE, GET, HEAD, PATCH", "stats": "GET, HEAD"}

    assert {path: http.put(f"/v1/{path}").headers["allow"] for path in expected} == expected
    assert http.put("/v1/stats").status_code == 405


def test_head_is_answered_as_get_without_a_body(http: httpx.Client) -> None:
    for path in ("/v1/topics", "/v1/openapi.json", "/v1/docs", "/livez", "/", "/metrics", "/messages/0"):
        get, head = http.get(path), http.head(path)

        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
        assert int(head.headers["content-length"]) > 0
    stream, without_get = http.head("/live/overview"), http.head("/v1/claim")
    assert (stream.status_code, stream.content) == (200, b"")
    assert (without_get.status_code, without_get.headers["allow"]) == (405, "POST")


def test_a_waiting_message_is_deleted_without_a_record(http: httpx.Client, queue: Queue) -> None:
    waits, runs = queue.publish("o.delete", priority=9), queue.publish("o.delete")
    queue.claim("o.delete", limit=1)

    answer = http.post("/v1/messages/delete", json={"ids": [waits, runs]}).json()

    assert answer == {"done": [waits], "unchanged": [runs]}
    assert http.get(f"/v1/messages/{waits}").status_code == 404


def test_a_topic_is_emptied_in_batches(http: httpx.Client, queue: Queue) -> None:
    *_, last = queue.publish_many(3, "o.purge")
    later = queue.publish("o.purge")

    body = {"limit": 2, "max_id": last}
    assert [http.post("/v1/topics/o.purge/purge", json=body).json()["deleted"] for _ in range(3)] == [2, 1, 0]
    assert queue.message(later) is not None
    assert queue.value("SELECT actor FROM messages.audit WHERE action = 'purge_topic' LIMIT 1") == "root"
