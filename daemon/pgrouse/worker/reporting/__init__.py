"""What the worker records and reports: log lines, metrics, hooks of observers."""
