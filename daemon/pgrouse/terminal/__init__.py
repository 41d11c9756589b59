"""The parts of every command: its session, the types of arguments, tables, progress bars, and reports of errors."""
