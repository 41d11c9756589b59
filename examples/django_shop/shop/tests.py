"""Tests of the shop: with `manage.py test`, and with pytest and pytest-django.

No worker runs: tasks run in the test.
"""

from django.test import TestCase
from django.urls import reverse

from pgrouse.contrib.django.testing import run_tasks
from shop.models import Order
from shop.tasks import count_sales, send_receipt


class OrderTest(TestCase):
    def place(self, customer):
        self.client.post(reverse("order"), {"customer": customer, "cents": "999"})
        return Order.objects.get()

    def test_an_order_gets_a_receipt(self):
        order = self.place("anna@example.com")
        self.assertIsNone(order.receipt_sent_at)

        run_tasks()

        order.refresh_from_db()
        self.assertIsNotNone(order.receipt_sent_at)
        self.assertEqual(send_receipt.get_result(order.task_id).return_value, {"sent_to": "anna@example.com"})

    def test_a_receipt_that_cannot_be_sent_is_tried_again(self):
        order = self.place("anna@example.invalid")

        (attempt,) = run_tasks()

        self.assertEqual(attempt.outcome, "retry")
        result = send_receipt.get_result(order.task_id)
        self.assertEqual((result.status, result.attempts), ("READY", 1))
        self.assertIs(result.errors[0].exception_class, ConnectionError)

    def test_without_the_order_there_is_no_task(self):
        with self.assertRaises(ValueError):
            self.client.post(reverse("order"), {"customer": "anna@example.com", "cents": "none"})

        self.assertEqual(run_tasks(), [])

    def test_sales_are_counted(self):
        result = count_sales.enqueue()

        run_tasks()

        result.refresh()
        self.assertEqual(result.return_value, {"cents": 0, "attempt": 1})
