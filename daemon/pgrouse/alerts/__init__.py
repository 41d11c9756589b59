"""Alerts on their way: from the outbox of the database to mail, chat, pagers, programs.

What is due, in which order and to whom, is decided in SQL (messages.deliver_next); here it is written, sent, and what became of it is said.
"""
