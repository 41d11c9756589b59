"""The log: the logger of every module, the names of its events, and how they are written."""
