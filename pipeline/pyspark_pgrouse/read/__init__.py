"""Reads the archive, the dead messages and the waiting messages as DataFrames."""
