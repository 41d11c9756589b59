"""The report: what happened in a window of time, as tables by Spark and as one page for people."""
