"""What one server does for all requests: long polls, batches of publishes, the registry of workers, maintenance."""
