from django.db import transaction
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST

from shop.models import Order
from shop.tasks import count_sales, send_receipt


def index(request):
    return render(request, "shop.html", {"orders": Order.objects.order_by("-pk")[:20]})


@require_POST
def order(request):
    # The order and its task are committed together, or neither is.
    with transaction.atomic():
        placed = Order.objects.create(customer=request.POST["customer"], cents=int(request.POST["cents"]))
        placed.task_id = send_receipt.enqueue(placed.pk).id
        placed.save(update_fields=["task_id"])
    return redirect("index")


def receipt(request, pk):
    """Show the state of an order's receipt."""
    result = send_receipt.get_result(Order.objects.get(pk=pk).task_id)
    return HttpResponse(f"{result.status}: {result.return_value if result.status == 'SUCCESSFUL' else result.errors}")


@require_POST
def report(request):
    count_sales.enqueue()
    return redirect("index")
