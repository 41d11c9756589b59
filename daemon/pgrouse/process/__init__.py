"""What every process needs that runs until it is stopped: loops, signals, and notifications to systemd."""
