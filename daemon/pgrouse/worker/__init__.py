"""Runs handlers: the daemon, its loops, the executor and the heartbeat."""
