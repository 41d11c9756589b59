"""Delivery of alerts: from the outbox in the database to mail, chat, pagers and programs.

SQL decides what is due, in which order and to which sink (messages.claim_delivery). The code here writes the text,
sends it and reports the result.
"""
