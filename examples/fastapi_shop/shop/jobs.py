from __future__ import annotations

from pydantic import BaseModel

from pgrouse import Reject, topic
from shop.database import Order, new_session


class OrderCreated(BaseModel):
    order_id: int


@topic("orders.created", max_attempts=5, backoff="exponential", timeout="10s")
async def order_created(message: OrderCreated) -> dict[str, int]:
    """Count the points of an order: one for each 100 cents. Setting them twice does no harm."""
    async with new_session() as session, session.begin():
        order = await session.get(Order, message.order_id)
        if order is None:
            raise Reject(f"there is no order {message.order_id}")
        order.points = points = order.cents // 100
        return {"points": points}
