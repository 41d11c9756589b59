"""Topics whose results have types."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pydantic import BaseModel

from pgrouse import AsyncContext, Fail, Reject, topic


class Order(BaseModel):
    id: int
    at: datetime


@dataclass
class Receipt:
    number: int
    at: datetime


@topic("receipt.send")
async def send_receipt(order: Order, ctx: AsyncContext) -> Receipt | Reject:
    return Receipt(order.id, order.at) if order.id else Reject("no number")


@topic("receipt.print", isolation="process")
def print_receipt(order: Order) -> list[Receipt]:
    return [Receipt(order.id, order.at)]


@topic("receipt.list", batch_size=5)
def list_receipts(orders: list[Order]) -> list[Receipt | Fail]:
    return [Receipt(each.id, each.at) for each in orders]


@topic("receipt.count")
def count_receipts(order: Order) -> int:
    return "not a number"
