"""A module that can be imported in the daemon, but not in a child of it."""

import sys

if not hasattr(sys.modules["__main__"], "__file__"):
    raise RuntimeError("this is not where I belong")


def work(payload, ctx):
    """Never called."""
