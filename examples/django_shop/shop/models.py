from django.db import models


class Order(models.Model):
    customer = models.EmailField()
    cents = models.PositiveIntegerField()
    receipt_sent_at = models.DateTimeField(null=True, editable=False)
    # The id of the task that sends the receipt.
    task_id = models.CharField(max_length=32, editable=False)

    def __str__(self):
        return f"order {self.pk} of {self.customer}"
