"""The report: what happened in a window of time, as tables by DuckDB and as one page for people."""
