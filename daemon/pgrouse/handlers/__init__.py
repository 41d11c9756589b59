"""What authors of handlers use: contexts, outcomes, batches, steps, transactions."""
