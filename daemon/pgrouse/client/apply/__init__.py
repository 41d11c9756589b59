"""Policies and schedules of a configuration: how the database differs from them, and how to apply them."""
