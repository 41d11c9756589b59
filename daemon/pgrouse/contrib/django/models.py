"""Messages as models: for the admin, and for queries. The tables are the queue's; what changes them is the Client."""

from __future__ import annotations

from django.db import models

from pgrouse.contrib.django import project


class QueuedMessage(models.Model):
    """What waiting and dead messages have in common. Contents are not among it: they may be large."""

    id = models.BigIntegerField(primary_key=True)
    topic = models.TextField()
    channel = models.TextField(null=True)
    key = models.TextField(null=True)
    priority = models.SmallIntegerField()
    created_at = models.DateTimeField(verbose_name="published at")
    attempts = models.IntegerField()

    class Meta:
        abstract = True

    def __str__(self) -> str:
        """The id and the topic."""
        return f"{self.id} ({self.topic})"


class WaitingMessage(QueuedMessage):
    """A message that has not ended: it waits, or is running."""

    available_at = models.DateTimeField()
    expires_at = models.DateTimeField(null=True)
    claim_id = models.BigIntegerField(null=True)
    locked_by = models.TextField(null=True, verbose_name="worker")
    locked_at = models.DateTimeField(null=True)
    lock_expires_at = models.DateTimeField(null=True)

    class Meta:
        managed = False
        db_table = f'{project.schema().quoted}."message"'
        ordering = ("-id",)
        default_permissions = ("view", "change")
        permissions = (
            ("cancel_waitingmessage", "Can cancel waiting message"),
            ("retry_waitingmessage", "Can retry waiting message"),
        )


class DeadMessage(QueuedMessage):
    """A message that ended with another result than success and cancelled."""

    result = models.TextField()
    error = models.TextField(null=True)
    error_fingerprint = models.TextField(null=True)
    handled_by = models.TextField(null=True, verbose_name="worker")
    archived_at = models.DateTimeField(verbose_name="died at")
    redriven_as = models.BigIntegerField(null=True)

    class Meta:
        managed = False
        db_table = f'{project.schema().quoted}."dead"'
        ordering = ("-id",)
        default_permissions = ("view",)
        permissions = (("redrive_deadmessage", "Can redrive dead message"),)
