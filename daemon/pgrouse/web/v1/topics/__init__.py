"""Topics: their counts, policies and pauses, their thresholds, and their subscriptions."""
