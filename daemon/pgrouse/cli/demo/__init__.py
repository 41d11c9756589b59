"""`pgrouse demo`: a real job on real files, on a private PostgreSQL, with two daemons, in a quarter of a minute.

It breaks things on purpose (a handler that fails, a worker killed with -9, a notification that is never sent), shows
what happens to the messages, and at the end verifies its results. `run.py` is the sequence of events.
"""
