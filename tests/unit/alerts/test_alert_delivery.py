"""What a deliverer decides: when to try again, when to give up, and that no sink can hang or break it."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from pgrouse.alerts.delivery import MAX_HANGING, MAX_REFUSALS, AlertDelivery, DeliveryResult, DueDelivery, retry_s
from pgrouse.alerts.notice import Notice
from pgrouse.alerts.sink import SendFailed
from pgrouse.alerts.sinks.webhook import WebhookTable
from pgrouse.client.connection.database import Database
from pgrouse.config.alerts import AlertsSettings
from pgrouse.config.config import DatabaseSettings
from pgrouse.process.wake_event import WakeEvent
from tests.unit.alerts.test_alert_notice import notice


def deliverer(act: Any = lambda: None, **settings: Any) -> AlertDelivery:
    sink = WebhookTable.model_validate({"name": "ops", "webhook": "http://x/tokentoken", "timeout": "60s", **settings})
    made = AlertDelivery(Database(DatabaseSettings(), "d"), AlertsSettings(to=[sink]), sink, "h", WakeEvent())

    def send(_notice: Notice, _timeout_s: float) -> str:
        act()
        return "ok"

    made.send = send
    return made


def raising(error: BaseException) -> Any:
    def act() -> None:
        raise error

    return act


def send(made: AlertDelivery) -> DeliveryResult:
    return asyncio.run(made._send(notice()))


def test_an_accepted_alert_is_delivered() -> None:
    assert send(deliverer()) == DeliveryResult()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (SendFailed("answered 503", retry_after_s=7), "answered 503"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (KeyError("http://x/tokentoken"), "KeyError: '****'"),
        (SendFailed("answered 400: no\x00\ud800"), "answered 400: no\ufffd?"),
        (ValueError("no\x00\ud800"), "ValueError: no\ufffd?"),
    ],
)
def test_any_exception_of_a_sink_is_recorded_without_its_secrets(error: BaseException, reason: str) -> None:
    assert ascii(send(deliverer(raising(error))).error) == ascii(reason)


def test_a_sink_that_hangs_is_abandoned_and_skipped() -> None:
    gate = threading.Event()
    asked: list[int] = []

    def hang() -> None:
        asked.append(1)
        gate.wait(60)

    made = deliverer(hang)

    async def five_times() -> list[str | None]:
        made.timeout_s = -0.95  # no call waits for the second of grace
        return [(await made._send(notice())).error for _ in range(5)]

    output = asyncio.run(five_times())
    gate.set()
    for thread in made._hanging:
        thread.join(60)

    assert len(asked) == MAX_HANGING
    assert [text for text in output if text] == output
    assert output[-1] == f"{MAX_HANGING} earlier sends still hang"


def test_the_delays_double_up_to_five_minutes_and_vary() -> None:
    assert [0.5 <= retry_s(1) <= 1, 4 <= retry_s(4) <= 8, 150 <= retry_s(30) <= 300] == [True] * 3
    assert len({retry_s(5) for _ in range(10)}) > 1


def due(attempt: int = 1, age: timedelta = timedelta(0)) -> DueDelivery:
    return DueDelivery(UUID(int=1), 1, 1, attempt, datetime.now(UTC) - age, {}, age.total_seconds(), "d")


@pytest.mark.parametrize(
    ("outcome", "given", "aside"),
    [
        (DeliveryResult("no answer"), due(attempt=1000), False),
        (DeliveryResult("no answer"), due(age=timedelta(days=8)), True),
        (DeliveryResult("answered 400", refused=True), due(MAX_REFUSALS - 1), False),
        (DeliveryResult("answered 400", refused=True), due(MAX_REFUSALS), True),
        (DeliveryResult(), due(MAX_REFUSALS, timedelta(days=8)), False),
    ],
)
def test_an_alert_that_is_refused_too_often_or_too_old_is_abandoned(
    outcome: DeliveryResult, given: DueDelivery, aside: bool
) -> None:
    assert deliverer()._next_step(given, outcome)[1] is aside


def test_a_sink_may_set_the_delay_of_the_next_try_within_a_limit() -> None:
    made = deliverer()

    assert made._next_step(due(), DeliveryResult("busy", retry_after_s=60))[0] == 60
    assert made._next_step(due(), DeliveryResult("busy", retry_after_s=1e9))[0] == 3600
