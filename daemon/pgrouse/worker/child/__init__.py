"""Child processes that run handlers, and the connection to them."""
