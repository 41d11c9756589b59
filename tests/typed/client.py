"""The types of the methods of both clients: `./go check` reads this file, and nothing runs it.

An ignore that is not needed is an error: each of them is a mistake that is detected.
"""

from __future__ import annotations

from datetime import datetime
from typing import assert_type

from pgrouse import AsyncClient, Client, Published
from pgrouse.client.calls.dead import Redriven
from pgrouse.client.calls.monitoring.stats import TopicStats
from pgrouse.client.queries.message import MessageRecord


def blocking(client: Client) -> None:
    assert_type(client.pause("t", reason="down", resume_in=60), datetime | None)
    assert_type(client.redrive([1], delay=1.5), list[Redriven])
    assert_type(client.message(1), MessageRecord)
    client.pause("t", reson="down")  # type: ignore[call-arg]
    client.pause()  # type: ignore[call-arg]
    client.cancel(1)  # type: ignore[arg-type]
    client.puase("t")  # type: ignore[attr-defined]


async def awaited(client: AsyncClient) -> None:
    assert_type(await client.pause("t", reason="down", resume_in=60), datetime | None)
    assert_type(await client.redrive([1], delay=1.5), list[Redriven])
    assert_type(await client.message(1), MessageRecord)
    assert_type(await client.stats(), list[TopicStats])
    assert_type(await client.publish("t", 1, key="k"), Published)
    await client.set_policy("t", max_attempts=3)
    await client.pause("t", reson="down")  # type: ignore[call-arg]
    await client.pause()  # type: ignore[call-arg]
    await client.cancel(1)  # type: ignore[arg-type]
    await client.puase("t")  # type: ignore[attr-defined]
    await client.publish("t", 1, kye="k")  # type: ignore[call-arg]
    await client.add_schedule("s", "@daily", "t", misssed="all")  # type: ignore[call-arg]
    client.stats()  # type: ignore[unused-coroutine]


def policies(client: Client) -> None:
    assert_type(client.set_policy("t", max_attempts=3, timeout="30s", ordered="inherit"), list[str])
    client.set_policy("t", backoff={"kind": "linear", "base": "5s"}, breaker="none", on_full="drop")
    client.set_policy("t", max_atempts=3)  # type: ignore[call-arg]
    client.set_policy("t", max_attempts="three")  # type: ignore[arg-type]
    client.set_policy("t", backoff="quadratic")  # type: ignore[arg-type]
    client.set_policy("t", backoff={"knd": "linear"})  # type: ignore[arg-type]
    client.set_policy("t", concurrency=3)  # type: ignore[call-arg]
    client.set_policy()  # type: ignore[call-arg]


async def policies_awaited(client: AsyncClient) -> None:
    assert_type(await client.set_policy("t", max_attempts=3), list[str])
    await client.set_policy("t", max_atempts=3)  # type: ignore[call-arg]
    await client.set_policy("t", max_attempts="three")  # type: ignore[arg-type]
    client.set_policy("t", max_attempts=3)  # type: ignore[unused-coroutine]
