"""The configuration: its settings, their sources, types and errors."""
