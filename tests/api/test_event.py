"""Events over HTTP: signals by id and by key, signed URLs, and workers that wait."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.api.site import Site, code
from tests.server.postgres import Database
from tests.sql.queue import Queue, Row

ADDRESS = "https://queue.example.com/jobs"


@pytest.fixture(scope="module")
def site(site_database: Database) -> Iterator[Site]:
    """A web server that knows its own address."""
    site = Site(site_database, url=ADDRESS)
    site.token("viewer")
    yield site
    site.stop()


@pytest.fixture
def anyone(site: Site) -> Iterator[httpx.Client]:
    """A client without a token."""
    with site.client() as client:
        yield client


def wait(queue: Queue, topic: str, name: str = "ok", **columns: Any) -> int:
    """Publish a message that waits for an event, and return its id."""
    published = queue.publish(topic, **columns)
    assert queue.settle("wait_for_event", queue.claim(topic), [name], [1], ["7 days"]) == []
    return published


def events(queue: Queue, topic: str) -> list[Any]:
    """Claim the message of a topic and return the payloads of its events."""
    (claimed,) = queue.claim(topic)
    rows: list[Row] = queue.rows("SELECT * FROM messages.load_events(%s, %s)", [claimed.id, claimed.claim_id])
    return [row.payload for row in rows if row.name is not None]


def test_a_signal_continues_the_message(http: httpx.Client, queue: Queue) -> None:
    published = wait(queue, "e.signal")

    answer = http.post(f"/v1/messages/{published}/signal", json={"name": "ok", "payload": {"by": "anna"}})

    assert (answer.status_code, answer.json()) == (200, {"id": published})
    assert events(queue, "e.signal") == ['{"by": "anna"}']


def test_a_repeated_signal_with_a_number_counts_once(http: httpx.Client, queue: Queue) -> None:
    published = wait(queue, "e.once")
    for _ in range(2):
        assert http.post(f"/v1/messages/{published}/signal", json={"name": "ok", "number": 1}).status_code == 200

    assert events(queue, "e.once") == ["null"]


def test_a_key_finds_its_message_until_it_has_ended(http: httpx.Client, queue: Queue) -> None:
    published = wait(queue, "e.key", key="k/ä")

    assert http.post("/v1/topics/e.key/signal", json={"key": "k/ä", "name": "ok"}).json() == {"id": published}
    assert code(http.post("/v1/topics/e.key/signal", json={"key": "other", "name": "ok"})) == "not_found"
    queue.call("cancel", [published])
    ended = http.post(f"/v1/messages/{published}/signal", json={"name": "ok"})
    assert (ended.status_code, code(ended)) == (404, "not_found")


@pytest.mark.parametrize("body", [{}, {"name": ""}, {"name": "a\nb"}, {"name": "n" * 181}, {"name": "ok", "number": 0}])
def test_an_invalid_signal_is_refused(http: httpx.Client, queue: Queue, body: dict[str, Any]) -> None:
    published = queue.publish("e.invalid")

    assert http.post(f"/v1/messages/{published}/signal", json=body).status_code == 422


def test_a_token_signals_messages_of_its_topics_only(site: Site, queue: Queue) -> None:
    other = wait(queue, "e.closed", key="k")
    with site.client(site.token("publisher", "worker", topics=("shop.*",))) as client:
        for path, body in (("signal", {"name": "ok"}), ("signal-url", {"name": "ok"})):
            answer = client.post(f"/v1/messages/{other}/{path}", json=body)
            assert (answer.status_code, code(answer)) == (404, "not_found")
        assert code(client.post("/v1/topics/e.closed/signal", json={"key": "k", "name": "ok"})) == "forbidden"
        assert code(client.post(f"/v1/messages/{other}/events", json={"claim_id": 1})) == "lock_lost"

    assert queue.claim("e.closed") == []


def test_a_worker_over_http_waits_and_goes_on(http: httpx.Client, queue: Queue) -> None:
    published = queue.publish("e.work")
    (first,) = http.post("/v1/claim", json={"topics": ["e.work"]}).json()["messages"]
    claim = {"claim_id": first["claim_id"]}
    assert http.post(f"/v1/messages/{published}/events", json=claim).json() == {"events": []}
    waits = {**claim, "outcome": "wait_for_event", "event": "ok", "delay": "1h"}
    assert http.post(f"/v1/messages/{published}/settle", json=waits).json() == {"settled": [published], "lost": []}
    assert http.post("/v1/claim", json={"topics": ["e.work"]}).json()["messages"] == []

    http.post(f"/v1/messages/{published}/signal", json={"name": "ok", "payload": 1.50})

    (again,) = http.post("/v1/claim", json={"topics": ["e.work"]}).json()["messages"]
    answer = http.post(f"/v1/messages/{published}/events", json={"claim_id": again["claim_id"]})
    assert answer.json() == {"events": [{"name": "ok", "payload": 1.5, "timed_out": False}]}
    assert code(http.post(f"/v1/messages/{published}/events", json=claim)) == "lock_lost"


def test_a_wait_names_its_event(http: httpx.Client, queue: Queue) -> None:
    published = queue.publish("e.unnamed")
    (claimed,) = queue.claim("e.unnamed")

    answer = http.post(
        f"/v1/messages/{published}/settle", json={"claim_id": claimed.claim_id, "outcome": "wait_for_event"}
    )

    assert answer.status_code == 422
    assert "event is missing" in answer.text


# Signed URLs.


def make_url(http: httpx.Client, message_id: int, **body: Any) -> str:
    answer = http.post(f"/v1/messages/{message_id}/signal-url", json={"name": "ok", **body})
    assert answer.status_code == 200, answer.text
    url: str = answer.json()["url"]
    assert url.startswith(f"{ADDRESS}/signal/{message_id}/")
    parts = urlsplit(url)
    return f"{parts.path.removeprefix('/jobs')}?{parts.query}"


def test_a_signed_url_signals_once_by_a_post_and_never_by_a_look(
    http: httpx.Client, anyone: httpx.Client, queue: Queue
) -> None:
    published = wait(queue, "e.url")
    url = make_url(http, published)
    for method in ("GET", "HEAD"):
        assert anyone.request(method, url).status_code == 200
    assert queue.claim("e.url") == []

    done, again = anyone.post(url, json={"by": "anna"}), anyone.post(url, json={"by": "mallory"})

    assert (done.status_code, done.json()) == (200, {"state": "done"})
    assert (again.status_code, again.json()) == (200, {"state": "used"})
    assert events(queue, "e.url") == ['{"by": "anna"}']
    assert queue.value("SELECT actor FROM messages.audit WHERE action = 'signal' AND topic = 'e.url'") == "signed URL"


def test_any_change_of_a_signed_url_makes_it_invalid(http: httpx.Client, anyone: httpx.Client, queue: Queue) -> None:
    published, other = wait(queue, "e.forged"), queue.publish("e.forged.other")
    url = make_url(http, published)

    for forged in (
        url.replace(f"/{published}/", f"/{other}/"),
        url.replace("/ok?", "/no?"),
        url.replace("number=1", "number=2"),
        url.replace("until=", "until=1"),
        url[:-1],
        url[: url.index("&signature")],
        url.replace("signature=", "signature=%00"),
        url.replace(f"/{published}/", "/99999999999999999999999/"),
        url.replace("/ok?", "/%ff%00?"),
    ):
        for method in ("GET", "POST"):
            answer = anyone.request(method, forged)
            assert answer.status_code in (403, 422), forged
    assert queue.claim("e.forged") == []


def test_a_signed_url_ends_with_its_time_and_its_message(
    http: httpx.Client, anyone: httpx.Client, queue: Queue
) -> None:
    published = wait(queue, "e.over")
    over = make_url(http, published, expires="0s")
    ended = make_url(http, published)
    assert code(anyone.post(over)) == "over"
    queue.call("cancel", [published])

    answer = anyone.post(ended)

    assert (answer.status_code, code(answer)) == (410, "ended")


def test_a_signed_url_takes_no_more_than_a_small_body(http: httpx.Client, anyone: httpx.Client, queue: Queue) -> None:
    url = make_url(http, wait(queue, "e.large"))

    assert anyone.post(url, json="x" * 20_000).status_code == 413
    assert code(anyone.post(url, content=b"{", headers={"Content-Type": "application/json"})) == "invalid"
    assert queue.claim("e.large") == []


def test_no_page_of_another_site_can_use_a_signed_url(http: httpx.Client, anyone: httpx.Client, queue: Queue) -> None:
    url = make_url(http, wait(queue, "e.origin"))

    assert code(anyone.post(url, headers={"Origin": "https://evil.example"})) == "other_origin"
    assert queue.claim("e.origin") == []


def test_a_browser_gets_a_page_with_a_button(http: httpx.Client, anyone: httpx.Client, queue: Queue) -> None:
    url = make_url(http, wait(queue, "e.page", name="<b>ok</b>"), name="<b>ok</b>")

    page = anyone.get(url, headers={"Accept": "text/html"})

    assert "&lt;b&gt;ok&lt;/b&gt;" in page.text
    assert '<button type="submit"' in page.text
    assert "<b>ok</b>" not in page.text
    used = anyone.post(url, headers={"Accept": "text/html"})
    assert "Done." in used.text


def test_another_server_takes_the_url_too(http: httpx.Client, site_database: Database, queue: Queue) -> None:
    published = wait(queue, "e.servers")
    url = make_url(http, published)
    other = Site(site_database)
    try:
        assert httpx.post(f"{other.url}{url}").json() == {"state": "done"}
    finally:
        other.stop()


def test_without_an_address_there_is_no_url(site_database: Database, queue: Queue) -> None:
    published = queue.publish("e.address")
    other = Site(site_database)
    try:
        with other.client(other.token("publisher")) as client:
            answer = client.post(f"/v1/messages/{published}/signal-url", json={"name": "ok"})
            assert (answer.status_code, code(answer)) == (409, "no_address")
    finally:
        other.stop()


def test_a_url_holds_a_year_at_most(http: httpx.Client, queue: Queue) -> None:
    answer = http.post(f"/v1/messages/{queue.publish('e.year')}/signal-url", json={"name": "ok", "expires": "400d"})

    assert answer.status_code == 422
