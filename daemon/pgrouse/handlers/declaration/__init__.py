"""What an application declares in code, and how it is found: handlers, topics, middleware, lifespans, hooks."""
