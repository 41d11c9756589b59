"""Publish messages in the transaction of the caller."""
