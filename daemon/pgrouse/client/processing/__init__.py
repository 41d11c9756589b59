"""What a worker does: it claims messages, extends their locks, and settles attempts."""
