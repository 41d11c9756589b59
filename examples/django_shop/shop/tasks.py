"""The background tasks of the shop. `manage.py pgrouse run` processes them."""

try:
    from django.tasks import task
except ImportError:  # before Django 6
    from django_tasks import task

from django.db.models import Sum
from django.utils import timezone

from shop.models import Order


@task
def send_receipt(order_id):
    """Send a receipt. A task may run twice: a receipt that was sent is not sent again."""
    order = Order.objects.get(pk=order_id)
    if order.receipt_sent_at is None:
        if order.customer.endswith(".invalid"):
            raise ConnectionError(f"no mail server for {order.customer}")
        order.receipt_sent_at = timezone.now()
        order.save(update_fields=["receipt_sent_at"])
    return {"sent_to": order.customer}


@task(queue_name="reports", takes_context=True)
async def count_sales(context):
    """Add up the sales."""
    found = await Order.objects.aaggregate(cents=Sum("cents"))
    return {"cents": found["cents"] or 0, "attempt": context.attempt}
