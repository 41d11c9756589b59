"""OpenTelemetry: the spans and metrics of publishers and of the daemon.

Nothing here is imported unless it is used or configured.
"""
