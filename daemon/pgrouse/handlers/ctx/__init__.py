"""What a handler does through `ctx`: steps, transactions, publishes, progress, completion."""
