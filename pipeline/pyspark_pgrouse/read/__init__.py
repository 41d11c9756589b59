"""The archive, the dead messages and what waits, as DataFrames."""
