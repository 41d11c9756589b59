"""Waits for the ends of messages: of one message, and of any number by one connection."""
