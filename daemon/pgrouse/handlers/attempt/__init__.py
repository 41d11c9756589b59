"""What belongs to the attempt that runs: its messages, its context variables, its log lines."""
