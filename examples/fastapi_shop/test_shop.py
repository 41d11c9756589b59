from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from pgrouse import wait_for
from pgrouse.testing import DatabaseUrl


@pytest.fixture(scope="module")
def pgrouse_database(pgrouse_session_database: DatabaseUrl) -> DatabaseUrl:
    """One database for all tests: the application opens its engine when it is imported."""
    return pgrouse_session_database


@pytest.fixture(scope="module")
def app(pgrouse_database: DatabaseUrl) -> Iterator[Any]:
    """The application, in the database of the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "PGROUSE_DSN", pgrouse_database)
        patch.setitem(os.environ, "SHOP_DATABASE_URL", pgrouse_database.url("postgresql+asyncpg"))
        patch.setitem(os.environ, "SHOP_STAFF_KEY", "key")
        patch.syspath_prepend(str(Path(__file__).parent))
        from shop.app import app  # noqa: PLC0415 - it reads the environment

        yield app
    for name in [each for each in sys.modules if each.partition(".")[0] == "shop"]:
        del sys.modules[name]


@asynccontextmanager
async def opened(app: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """A client of the running application."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
    ):
        yield client


def run(coroutine: Any) -> None:
    asyncio.run(coroutine)


def test_an_order_gets_its_points(app: Any, pgrouse_database: DatabaseUrl, published: Any) -> None:
    async def shop() -> None:
        async with opened(app) as client:
            made = (await client.post("/orders", json={"customer": "Ada", "cents": 1250})).json()
            result = await asyncio.to_thread(wait_for, pgrouse_database, made["message"], timeout=60)
            assert result.output == {"points": 12}
            assert (await client.get(f"/orders/{made['id']}")).json()["points"] == 12
            assert (await client.get("/health")).status_code == 200
        assert [each["payload"] for each in published("orders.created")] == [{"order_id": made["id"]}]

    run(shop())


def test_an_order_that_is_refused_publishes_nothing(app: Any, published: Any) -> None:
    async def shop() -> None:
        async with opened(app) as client:
            assert (await client.post("/orders", json={"customer": "Ada", "cents": -1})).status_code == 422

    run(shop())
    assert published() == []


def test_only_staff_see_the_dashboard(app: Any) -> None:
    async def shop() -> None:
        async with opened(app) as client:
            page = {"accept": "text/html"}
            refused = await client.get("/queue/topics", headers=page)
            assert (refused.status_code, refused.headers["location"]) == (303, "/queue/login?next=%2Ftopics")
            assert (await client.get("/staff/wrong")).status_code == 403
            assert (await client.get("/staff/key")).headers["location"] == "/queue/"
            assert (await client.get("/queue/topics", headers=page)).status_code == 200

    run(shop())
