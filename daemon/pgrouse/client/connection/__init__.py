"""Connections to PostgreSQL: of the server, of a pool, through a pooler, and one that listens."""
