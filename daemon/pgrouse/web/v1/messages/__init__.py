"""Messages: how they are published, found, shown and changed."""
