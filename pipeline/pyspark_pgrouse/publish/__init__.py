"""Publishes DataFrames as messages."""
