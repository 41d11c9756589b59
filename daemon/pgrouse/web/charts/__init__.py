"""Charts of what ended and of what waits."""
