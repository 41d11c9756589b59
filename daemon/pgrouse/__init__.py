"""pgrouse: a message queue and worker daemon in PostgreSQL."""
