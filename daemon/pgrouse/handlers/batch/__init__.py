"""Batches: a handler that takes a list of messages, and its context."""
