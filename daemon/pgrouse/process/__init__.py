"""The parts of every process that runs until it is stopped: loops, signals, systemd, and forks."""
