"""Tokens: which ones are accepted, and which ones are not any more."""

from __future__ import annotations

import asyncio
import base64
from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest

from pgrouse.web.access import database_pool, token_cache, tokens
from tests.api.site import Site, code
from tests.server.deadline import eventually
from tests.server.postgres import Database
from tests.sql.queue import Queue


def test_a_token_is_accepted_as_the_password_of_basic(site: Site) -> None:
    token = site.token("viewer")

    answer = httpx.get(f"{site.url}/v1/stats", auth=("any-user", token))

    assert answer.status_code == 200


def test_a_foreign_or_malformed_token_is_refused(site: Site) -> None:
    no_colon, of_another_queue = base64.b64encode(b"no colon").decode(), tokens.new()
    schemes = ("Bearer nonsense", "Bearer", "Basic !!!", f"Basic {no_colon}", "Digest x", "Bearer \xe4\xf6")
    for header in (*schemes, f"Bearer {of_another_queue}"):
        answer = httpx.get(f"{site.url}/v1/stats", headers={"Authorization": header.encode("latin-1")})

        assert (answer.status_code, code(answer)) == (401, "unauthenticated")
        assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.long
def test_a_revoked_token_is_refused_within_two_seconds(site: Site, queue: Queue) -> None:
    with site.client(site.token("viewer", name="leaver")) as client:
        assert client.get("/v1/stats").status_code == 200

        queue.call("revoke_token", "leaver")

        assert token_cache.CACHE_S == 2
        eventually(lambda: client.get("/v1/stats").status_code == 401, within_s=30)


def test_concurrent_requests_with_a_new_token_look_it_up_once(
    site_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database_pool, "MAX_WAITING", 10)
    # Waiting requests should not be refused because the machine pauses.
    monkeypatch.setattr(database_pool, "WAIT_S", 60.0)
    crowded, came = Site(site_database, pool_size=1, statement_timeout="60s"), []
    by_token = token_cache.TokenCache.by_token

    async def counted(*given: Any) -> Any:
        came.append(given)
        return await by_token(*given)

    monkeypatch.setattr(token_cache.TokenCache, "by_token", counted)

    async def send_all(token: str, holder: psycopg.Connection[Any]) -> set[int]:
        headers, limits = {"Authorization": f"Bearer {token}"}, httpx.Limits(max_connections=60)
        async with httpx.AsyncClient(base_url=crowded.url, headers=headers, timeout=90, limits=limits) as client:
            sent = [
                asyncio.create_task(client.post("/v1/messages", json={"topic": "t", "payload": None}))
                for _ in range(60)
            ]
            await asyncio.to_thread(eventually, lambda: len(came) == len(sent))
            await asyncio.to_thread(holder.rollback)
            return {answer.status_code for answer in await asyncio.gather(*sent)}

    try:
        token = crowded.token("publisher")
        with site_database.connect(autocommit=False) as holder:
            # No request is answered until all have arrived.
            holder.execute("LOCK messages.token")
            codes = asyncio.run(send_all(token, holder))
    finally:
        crowded.stop()

    assert codes == {201}


@pytest.mark.long
def test_an_expired_token_is_refused(site: Site) -> None:
    with site.client(site.token("viewer", expires=timedelta(seconds=1))) as client:
        eventually(lambda: client.get("/v1/stats").status_code == 401, within_s=30)


def test_the_secret_of_a_token_is_not_stored(site: Site, queue: Queue) -> None:
    token = site.token("viewer")
    with site.client(token) as client:
        client.get("/v1/stats")

    for table in ("token", "web_session", "web_request", "audit"):
        assert token[4:20] not in str(queue.rows(f"SELECT t.* FROM messages.{table} AS t"))


def test_a_client_with_many_wrong_tokens_is_delayed_and_others_are_not(site: Site) -> None:
    with site.client(site.token("viewer")) as friend, httpx.Client(base_url=site.url) as attacker:
        codes = {
            attacker.get("/v1/stats", headers={"Authorization": f"Bearer {tokens.new()}"}).status_code
            for _ in range(token_cache.MAX_FAILURES + 5)
        }

        assert codes == {401, 429}
        assert friend.get("/v1/stats").status_code == 200


def test_tokens_have_a_recognizable_and_checkable_form() -> None:
    token = tokens.new()

    assert token.startswith("pgr_")
    assert tokens.is_well_formed(token)
    assert not tokens.is_well_formed(token[:-1] + ("0" if token[-1] != "0" else "1"))
    assert len(tokens.digest(token)) == 32
