"""Which role may call which route.

Every served route is tried with every role, from the app itself, so that new routes are included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from pgrouse.config.config import Config
from pgrouse.web import application
from pgrouse.web.access.caller import Role
from pgrouse.web.access.security import RequireRole
from tests.api.site import Site, code
from tests.server.deadline import eventually
from tests.sql.queue import Queue

# Routes that need no token.
OPEN = {
    *("GET /login", "POST /login", "POST /logout", "GET /v1/openapi.json", "GET /v1/docs", "GET /runbooks"),
    *("GET /login/oidc", "GET /login/oidc/callback", "GET /livez", "GET /readyz"),
    # The signature is the right.
    *("GET /signal/{message_id}/{name:path}", "POST /signal/{message_id}/{name:path}"),
}
# This route checks the token itself, since it also answers during an outage, when no token can be checked.
BY_ITSELF = {"GET /metrics"}
HAS = {role: {role} | ({Role.VIEWER} if role is Role.OPERATOR else set()) for role in Role}


@dataclass(frozen=True)
class Way:
    """A route with one of its methods, and the roles that it requires."""

    method: str
    path: str
    roles: tuple[Role, ...]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def ways() -> Iterator[Way]:
    """Yield the served routes, whatever registered them."""
    for included in application.create_app(Config()).routes:
        for route in included.original_router.routes if hasattr(included, "original_router") else [included]:
            if not isinstance(route, APIRoute):
                assert getattr(route, "path", None) == "/static/{name:path}"
                continue
            roles = tuple(each.call.role for each in route.dependant.dependencies if isinstance(each.call, RequireRole))
            for method in sorted(route.methods):
                yield Way(method, route.path, roles)


WAYS = list(ways())
CLOSED = [way for way in WAYS if str(way) not in OPEN]


@pytest.fixture(scope="module")
def clients(site: Site) -> Iterator[dict[Role, httpx.Client]]:
    """A client of each role, with that role only."""
    found = {role: site.client(site.token(role, name=f"only-{role}")) for role in Role}
    yield found
    for client in found.values():
        client.close()


def ask(client: httpx.Client, way: Way) -> httpx.Response:
    path = re.sub(r"\{(\w+)(:path)?\}", lambda found: "1" if "id" in found[1] else "purge", way.path)
    return client.request(way.method, path, content=b"{}" if way.method != "GET" else None, headers=JSON)


JSON = {"Content-Type": "application/json"}


def test_every_route_requires_one_role_unless_it_is_listed_as_open() -> None:
    assert {str(way) for way in WAYS if len(way.roles) != 1} == OPEN | BY_ITSELF


def test_no_route_that_changes_something_is_for_viewers() -> None:
    changing = [way for way in CLOSED if way.method not in ("GET", "HEAD")]

    assert [str(way) for way in changing if Role.VIEWER in way.roles] == []
    assert {way.path for way in changing if Role.PUBLISHER in way.roles} == {
        *("/v1/messages", "/v1/messages/batch", "/v1/topics/{topic}/messages", "/messages/new"),
        *("/v1/batches", "/v1/batches/{batch_id}/close"),
        *("/v1/messages/{message_id}/signal", "/v1/topics/{topic}/signal", "/v1/messages/{message_id}/signal-url"),
    }
    assert {way.path for way in changing if Role.WORKER in way.roles} == {
        *("/v1/claim", "/v1/settle", "/v1/heartbeat"),
        *("/v1/messages/{message_id}/settle", "/v1/messages/{message_id}/heartbeat"),
        "/v1/messages/{message_id}/events",
    }


def test_the_metrics_are_for_viewers(clients: dict[Role, httpx.Client], site: Site) -> None:
    assert httpx.get(f"{site.url}/metrics").status_code == 401
    assert {role: client.get("/metrics").status_code for role, client in clients.items()} == {
        role: 200 if Role.VIEWER in HAS[role] else 403 for role in Role
    }


@pytest.mark.long
def test_the_description_has_every_route_of_the_api(site: Site) -> None:
    described = httpx.get(f"{site.url}/v1/openapi.json").json()["paths"]

    assert {(path, method.upper()) for path, methods in described.items() for method in methods} == {
        (way.path, way.method) for way in CLOSED if way.path.startswith("/v1")
    }


def test_a_route_admits_its_role_and_no_other(clients: dict[Role, httpx.Client], site: Site) -> None:
    admitted, ways = {}, [way for way in CLOSED if way.path.startswith("/v1")]
    with site.client() as anonymous:
        assert {str(way) for way in ways if ask(anonymous, way).status_code != 401} == set()
    for way in ways:
        answers = {role: ask(client, way) for role, client in clients.items()}
        admitted[str(way)] = {
            role for role, answer in answers.items() if answer.status_code != 403 or code(answer) != "forbidden"
        }

    assert admitted == {str(way): {role for role in Role if way.roles[0] in HAS[role]} for way in ways}
    assert len(ways) > 75


@pytest.fixture(scope="module")
def shop(site: Site) -> Iterator[httpx.Client]:
    """A client that may do everything with the topics of a shop."""
    with site.client(site.token(*Role, topics=("shop.*", "mail"), name="shop")) as client:
        yield client


OTHER = {"topic": "other", "payload": None}


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/messages", OTHER),
        ("POST", "/v1/messages/batch", {"messages": [{"topic": "mail", "payload": None}, OTHER]}),
        ("POST", "/v1/topics/other/messages", {}),
        ("POST", "/v1/topics/other/signal", {"key": "k", "name": "ok"}),
        ("POST", "/v1/claim", {"topics": ["mail", "other"]}),
        ("GET", "/v1/messages?topic=other", None),
        ("GET", "/v1/dead?topic=other", None),
        ("GET", "/v1/dead/groups?topic=other", None),
        ("POST", "/v1/dead/redrive", {"filter": {"topic": "other"}}),
        ("GET", "/v1/topics/other", None),
        ("GET", "/v1/topics/*", None),
        ("PATCH", "/v1/topics/other", {"max_attempts": 2}),
        ("PATCH", "/v1/topics/*", {"max_attempts": 2}),
        ("POST", "/v1/topics/other/pause", {}),
        ("POST", "/v1/topics/*/pause", {}),
        ("POST", "/v1/topics/other/resume", {}),
        ("GET", "/v1/topics/other/channels", None),
        ("PATCH", "/v1/topics/other/channels", {"channel": "c", "policy": {"concurrency": 1}}),
        ("POST", "/v1/topics/other/channels/pause", {"channel": "c"}),
        ("POST", "/v1/topics/other/channels/resume", {"channel": "c"}),
        ("POST", "/v1/topics/other/channels/skip", {"channel": "c"}),
        ("POST", "/v1/schedules", {"name": "s", "cron": "* * * * *", "topic": "other"}),
        ("POST", "/v1/batches", {"on_finish": "mail", "on_failure": "other"}),
        ("POST", "/v1/batches/1/cancel", {}),
        ("POST", "/v1/batches/1/redrive", {}),
        ("POST", "/v1/maintenance/run", None),
        ("POST", "/v1/reapers/purge/run", None),
        ("GET", "/v1/audit?topic=other", None),
    ],
)
def test_a_topic_outside_the_patterns_is_forbidden(shop: httpx.Client, method: str, path: str, body: Any) -> None:
    answer = shop.request(method, path, json=body)

    assert (answer.status_code, code(answer)) == (403, "forbidden")


def test_lists_show_only_topics_that_match_the_patterns(shop: httpx.Client, queue: Queue) -> None:
    mine, other = queue.publish("shop.orders"), queue.publish("other")
    dead = {}
    for topic in ("shop.orders", "other"):
        queue.schedule(f"s-{topic}", topic=topic)
        published = queue.publish(topic)
        queue.settle("fail", [row for row in queue.claim(topic) if row.id == published], ["boom"])
        queue.settle("release", queue.rows("SELECT * FROM messages.message WHERE claim_id IS NOT NULL"))
        dead[topic] = published

    assert {row["id"] for row in shop.get("/v1/messages").json()["messages"]} & {mine, other} == {mine}
    for path, rows in (("dead", "messages"), ("dead/groups", "groups"), ("stats", "topics"), ("topics", "topics")):
        assert {row["topic"] for row in shop.get(f"/v1/{path}").json()[rows]} == {"shop.orders"}
    assert [row["name"] for row in shop.get("/v1/schedules").json()["schedules"]] == ["s-shop.orders"]
    for path in (f"messages/{other}", f"messages/{other}/explain", f"messages/{other}/logs", "schedules/s-other"):
        assert shop.get(f"/v1/{path}").status_code == 404
    redriven = shop.post("/v1/dead/redrive", json={"ids": sorted(dead.values())}).json()["results"]
    assert {row["archived_id"]: row["outcome"] for row in redriven} == {
        dead["shop.orders"]: "redriven",
        dead["other"]: "not_dead",
    }


def test_messages_of_other_topics_are_neither_changed_nor_settled(shop: httpx.Client, queue: Queue) -> None:
    other = queue.publish("closed")
    assert shop.post("/v1/messages/cancel", json={"ids": [other]}).json() == {"done": [], "unchanged": [other]}
    assert shop.patch(f"/v1/messages/{other}", json={"payload": 1}).status_code == 404
    assert shop.delete("/v1/schedules/s-other").status_code == 404
    assert shop.patch("/v1/schedules/s-other", json={"cron": "@daily"}).status_code == 404
    assert shop.patch("/v1/schedules/s-shop.orders", json={"topic": "other"}).status_code == 403

    (claimed,) = queue.claim("closed")
    answer = shop.post(f"/v1/messages/{other}/settle", json={"claim_id": claimed.claim_id, "outcome": "complete"})
    beat = shop.post("/v1/heartbeat", json={"messages": [{"id": other, "claim_id": claimed.claim_id}]})

    assert code(answer) == "lock_lost"
    assert beat.json()["lost"] == [other]
    assert queue.message(other).claim_id == claimed.claim_id


def test_a_pattern_is_not_a_pattern_of_sql(site: Site, queue: Queue) -> None:
    queue.publish("a_b")
    queue.publish("axb")
    with site.client(site.token("viewer", topics=("a_*",))) as client:
        assert {row["topic"] for row in client.get("/v1/messages").json()["messages"]} == {"a_b"}


def test_a_token_of_some_topics_sees_and_closes_only_the_batches_that_it_created(
    shop: httpx.Client, queue: Queue
) -> None:
    own, other = shop.post("/v1/batches", json={"on_finish": "mail"}).json()["id"], queue.call("create_batch")

    assert [row["id"] for row in shop.get("/v1/batches").json()["batches"]] == [own]
    assert shop.get(f"/v1/batches/{other}").status_code == shop.post(f"/v1/batches/{other}/close").status_code == 404
    assert shop.post(f"/v1/batches/{own}/close").json()["state"] == "finished"


def test_a_star_of_a_token_is_one_level_and_two_are_any_number(site: Site, queue: Queue) -> None:
    for topic in ("level", "level.one", "level.one.two", "levelx"):
        queue.publish(topic)

    def tried(*topics: str) -> tuple[set[str], list[int], list[int]]:
        """Return the topics that are listed, and the answers to publishes and claims."""
        with site.client(site.token("viewer", "publisher", "worker", "operator", topics=topics)) as client:
            listed = {row["topic"] for row in client.get("/v1/messages").json()["messages"]}
            assert listed == {row["topic"] for row in client.get("/v1/stats").json()["topics"]}
            assert listed == {row["topic"] for row in client.get("/v1/topics").json()["topics"]}
            assert (
                client.get("/v1/topics/*").status_code == client.post("/v1/topics/*/pause", json={}).status_code == 403
            )
            publishes = ("level", "level.one", "level.one.two", "level.one.dlq")
            claims = ("level", "level.*", "level.one", "level.**", "level.one.*", "level.one.**", "**", "lev.*")
            return (
                listed,
                [client.post(f"/v1/topics/{each}/messages", json={}).status_code for each in publishes],
                [client.post("/v1/claim", json={"topics": [each], "limit": 1}).status_code for each in claims],
            )

    assert tried("level.*") == ({"level.one"}, [403, 201, 403, 403], [403, 200, 200, *[403] * 5])
    claimed = [403, 200, 200, 200, 200, 200, 403, 403]
    assert tried("level.**") == ({"level.one", "level.one.two"}, [403, 201, 201, 403], claimed)


def test_a_claim_over_http_takes_patterns_and_waits_for_topics_that_are_new(site: Site, queue: Queue) -> None:
    with site.client(site.token("worker", topics=("fresh.*",))) as client, ThreadPoolExecutor(1) as background:
        claim = {"topics": ["fresh.*"], "wait": 20, "worker": "rust"}
        waiting = background.submit(client.post, "/v1/claim", json=claim, timeout=60)
        eventually(lambda: queue.rows("SELECT FROM messages.sleeper WHERE 'fresh.*' = ANY (topics)"))
        published = queue.publish("fresh.one")

        assert [each["id"] for each in waiting.result().json()["messages"]] == [published]
    assert queue.call("is_handled", "fresh.two")
