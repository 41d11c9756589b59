"""What every command is made of: its session and options, the types of arguments, tables, progress bars, and the reports of errors."""
