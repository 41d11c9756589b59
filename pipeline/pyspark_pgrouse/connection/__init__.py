"""Connections to PostgreSQL: how they are named and made, and standbys that reads wait for."""
