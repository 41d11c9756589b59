"""A module that can be imported in the daemon, but not in a child of it."""

import multiprocessing

if multiprocessing.parent_process() is not None:
    raise RuntimeError("this is not where I belong")


def work(payload, ctx):
    """Never called."""
