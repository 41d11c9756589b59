"""The keys of encrypted messages in the database: which are needed, and how they are rotated."""
