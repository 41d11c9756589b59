"""Keeps open pages up to date."""
