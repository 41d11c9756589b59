"""The names for authors of handlers: contexts, outcomes, batches, steps, transactions."""
